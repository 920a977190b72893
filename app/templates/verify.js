(function () {
  // The link carries the code behind "#", which no server sees. It goes into the field and out of the address bar;
  // nothing is sent until a person presses a button.
  function take() {
    var hash = window.location.hash, field = document.getElementById("token"), code;
    if (hash.length < 2) return;
    if (!field) {
      // An answer without a form. With another query the browser loads the page anew instead of staying on this one.
      window.location.replace("/verify?again" + hash);
      return;
    }
    code = hash.slice(1);
    try { field.value = decodeURIComponent(code); } catch (error) { field.value = code; }
    window.history.replaceState(null, "", "/verify");
    document.querySelector("button[value=confirm]").focus();
  }
  // A newer link opened in the same tab loads no page: only the part behind "#" changes.
  window.addEventListener("hashchange", take);
  take();
})();
