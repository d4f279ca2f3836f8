// Keeps the page current: it asks for itself again and puts the new main in the place of the old. So the server alone
// knows how a lease is written, and no key is ever put together with markup here.
"use strict";
const live = document.getElementById("live");
const words = live.querySelector("[role=status]");
let answered = new Date();

function say(state, text) {
  live.className = "quiet " + state;
  if (words.textContent !== text) words.textContent = text;
}

async function refresh() {
  const reply = await fetch(location.href, {
    headers: { Accept: "text/html" }, cache: "no-store", redirect: "error", signal: AbortSignal.timeout(5000),
  });
  if (!reply.ok) throw new Error("status " + reply.status);
  const next = new DOMParser().parseFromString(await reply.text(), "text/html").querySelector("main");
  if (!next) throw new Error("another page");
  answered = new Date();
  // Somebody who is about to copy a key keeps what is marked.
  if (getSelection().isCollapsed) document.querySelector("main").replaceWith(next);
}

async function run() {
  while (!document.hidden) {
    try {
      await refresh();
      say("on", getSelection().isCollapsed ? "Live" : "Paused while text is selected");
    } catch (error) {
      say("off", "No answer since " + answered.toISOString().slice(11, 19) + " UTC.");
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
  running = false;
}

let running = false;
function start() {
  if (!running && !document.hidden) {
    running = true;
    run();
  }
}
document.addEventListener("visibilitychange", start);
start();
