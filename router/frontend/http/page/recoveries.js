"use strict";

// --- Losses of stages: the list of them, and what the answers in progress say about them ---

let knownRecoveries = null;  // key -> whether it was over; null before the first look

const recoveryKey = (one) => `${one.replica}/${one.began}`;

function stageName({ stage, replica }) {
  if (stage === null) return "A stage";
  return `Stage ${stage}${replica > 0 ? ` of replica ${replica}` : ""}`;
}

const secondsText = (seconds) => `${seconds.toFixed(seconds < 10 ? 2 : 0)} s`;

function recoveryText(one) {
  if (one.phase) return `${stageName(one)} was lost, and ${kPhases[one.phase]}.`;
  return `${stageName(one)} was lost, and replaced after ${secondsText(one.seconds)}${one.kv_kept ? "; its KV cache was kept" : ""}.`;
}

function showRecoveries(recoveries) {
  const kMost = 4;
  $("no-recovery").hidden = recoveries.length > 0;
  $("recoveries").replaceChildren(...[...recoveries].reverse().slice(0, kMost).map((one) => {
    const item = make("li", one.phase ? "now" : "");
    const began = new Date(one.began * 1000);
    const time = make("time", "", began.toLocaleTimeString([], { hour12: false }));
    time.dateTime = began.toISOString();
    item.append(time, make("span", "", recoveryText(one)));
    item.title = one.reason;
    return item;
  }));
}

// Tells the answers that were in progress. Answers that ended since the last look may have met it, too.
function noteRecoveries(recoveries, stages) {
  const known = knownRecoveries;
  knownRecoveries = new Map(recoveries.map((one) => [recoveryKey(one), !one.phase]));
  const met = [...running.values(), ...ended];
  ended = [];
  if (!known) return;
  for (const one of recoveries) {
    const key = recoveryKey(one);
    const isOver = !one.phase;
    if (known.get(key) === true) continue;
    if (isOver) flashStage(stages, one);
    if (!known.has(key) || isOver) announce(recoveryText(one));
    for (const run of met) {
      (run.message.notes ??= {})[key] = `${recoveryText(one)}${isOver ? " The answer went on." : " The answer will go on."}`;
      run.view?.draw();
      if (!running.has(run.chat.id)) store.save(run.chat);
    }
  }
}
