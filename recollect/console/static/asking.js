"use strict";
// The answer comes as part of the page. This stops it, and says when nothing comes any more.

let silence;

function line() {
  return document.querySelector(".writing");
}

function end(words) {
  clearTimeout(silence);
  if (line()) line().textContent = words;
}

// Whatever comes is a node, also the comment that says that the model still works. A browser tells
// nobody that the rest of a page is missing.
function came() {
  clearTimeout(silence);
  if (document.getElementById("answered")) return watching.disconnect();
  const stop = document.querySelector("[data-stop]");
  if (!stop) return;
  stop.hidden = false;
  const broken = () => end("The connection broke before the answer was whole. Ask again.");
  silence = setTimeout(broken, line().dataset.patience * 1000);
}

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-stop]")) return;
  watching.disconnect();
  window.stop(); // the connection closes, and with it the model's work ends
  end("Stopped.");
});

const watching = new MutationObserver(came);
watching.observe(document, { childList: true, subtree: true });
came();
