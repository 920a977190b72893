(function () {
  "use strict";
  // The link carries the code behind "#", which no server sees. From there it goes into the field, and into this entry of
  // the tab's history, where a reload finds it again; never into an address. Nothing is sent until a person presses a
  // button.
  var root = document.documentElement, main = document.querySelector("main");
  var form = document.querySelector("form"), field = document.getElementById("token"), sent = -Infinity;

  function keep(state) {
    // An entry replaced like this is fetched again by GET: reloading an answer sends nothing a second time.
    window.history.replaceState(state, "", "/verify");
  }

  function fill(code) {
    field.value = code;
    keep({ code: code });
  }

  function decoded(code) {
    try { return decodeURIComponent(code); } catch (error) { return code; }
  }

  function show(answer) {
    // What this page of ours said before the reload, in the server's own markup.
    root.lang = answer.lang;
    document.title = answer.title;
    main.className = answer.tone;
    main.innerHTML = answer.html;
    field = null;
  }

  function take() {
    var code = window.location.hash.slice(1), kept = window.history.state || {};
    if (code && field) fill(decoded(code));
    // An answer has no field. With another query the browser loads the page anew instead of staying on this one.
    else if (code) window.location.replace("/verify?again" + window.location.hash);
    else if (!field) keep({ html: main.innerHTML, tone: main.className, title: document.title, lang: root.lang });
    else if (kept.html) show(kept);
    else fill(field.value || kept.code || "");
  }

  // A double click sends once. After a while the button works again: the first try may have been lost.
  if (form) form.addEventListener("submit", function (event) {
    if (event.timeStamp - sent < 3000) event.preventDefault();
    else sent = event.timeStamp;
  });
  // Back from the answer to a page that the browser had kept.
  window.addEventListener("pageshow", function () { sent = -Infinity; });
  // A newer link opened in the same tab loads no page: only the part behind "#" changes.
  window.addEventListener("hashchange", take);
  take();
})();
