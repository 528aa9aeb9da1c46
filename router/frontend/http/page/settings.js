"use strict";

// --- The settings of a chat, and the server's API key ---

const kSettings = ["system", "temperature", "top_p", "max_tokens", "seed", "tool_choice", "schema"];

function openSettings() {
  for (const name of kSettings) $(name).value = current[name];
  checkSchema();
  $("settings").showModal();
}

function checkSchema() {
  let trouble = "";
  try {
    JSON.parse($("schema").value);
  } catch (error) {
    trouble = `This is no JSON: ${error.message}`;
  }
  $("schema-error").textContent = trouble;
  $("schema-error").hidden = !trouble;
  $("schema").setAttribute("aria-invalid", String(Boolean(trouble)));
}

function askForKey(isNeeded) {
  if ($("access").hidden !== isNeeded) return;
  $("access").hidden = !isNeeded;
  if (isNeeded) $("key").focus();
}

for (const name of kSettings) {
  $(name).addEventListener("input", () => {
    current[name] = $(name).value;
    if (name === "schema") checkSchema();
  });
}
$("open-settings").addEventListener("click", openSettings);
$("settings").addEventListener("close", () => store.save(current));
$("open-keys").addEventListener("click", () => $("keys").showModal());
$("change-key").addEventListener("click", () => {
  $("settings").close();
  askForKey(true);
});
$("access").addEventListener("submit", (event) => {
  event.preventDefault();
  askForKey(false);
  pollNow();
  $("question").focus();
});
