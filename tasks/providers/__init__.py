"""Mail providers behind one narrow protocol (`base`); one small file each, one line in `registry`."""
