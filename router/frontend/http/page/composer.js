"use strict";

// --- The message that is written, and the form that its answer has ---

const kModeHints = {
  text: "",
  json: "The answer has the form of the chat's JSON Schema; its values are shown as they come.",
  tool: "The model calls the tool departures, which runs in this page.",
};

function showMode() {
  $("mode-hint").textContent = kModeHints[current.mode];
}

function send() {
  const question = $("question").value.trim();
  if (running.has(current.id) || !question) return;
  $("question").value = "";
  grow();
  askIn(current, question);
}

function grow() {
  $("question").style.height = "auto";
  $("question").style.height = `${Math.min(192, $("question").scrollHeight + 2)}px`;
}

function editLast() {
  const questions = document.querySelectorAll(".turn.user .actions button:first-child");
  [...questions].at(-1)?.click();
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running.has(current.id)) stopAnswer(current);
  else send();
});
$("question").addEventListener("input", grow);
$("question").addEventListener("keydown", (event) => {
  if (isSendKey(event)) {
    event.preventDefault();
    send();
  } else if (event.key === "ArrowUp" && !$("question").value) {
    event.preventDefault();
    editLast();
  }
});
$("modes").addEventListener("change", (event) => {
  current.mode = event.target.value;
  showMode();
  store.save(current);
});
