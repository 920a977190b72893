(function () {
  // The link carries the code behind "#", which no server sees. It goes into the field and out of the address bar;
  // nothing is sent until a person presses a button.
  var code = window.location.hash.slice(1);
  if (!code) return;
  var field = document.getElementById("token");
  try { field.value = decodeURIComponent(code); } catch (error) { field.value = code; }
  window.history.replaceState(null, "", window.location.pathname);
  document.querySelector("button[value=confirm]").focus();
})();
