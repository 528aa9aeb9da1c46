"use strict";

// --- The stages of the pipelines: their share of time, and what is wrong with them ---

const kPhases = { wait: "waits for its new process", load: "loads its layers", join: "joins the pipeline" };
const replicasOf = (stages) => new Set(stages.map((stage) => stage.replica)).size || 1;
// The place of a stage in the list, and its number in its pipeline. Replicas that were left are not in the list.
const placeOf = (stages, replica, n) => stages.findIndex((stage) => stage.replica === replica) + n;
const numberOf = (stages, i) => i - placeOf(stages, stages[i].replica, 0);

function stageItem(stage, name) {
  const item = make("li", "stage");
  const last = stage.first_layer + stage.n_layers - 1;
  const load = make("div", "load");
  load.append(make("div"));
  const layers = `layers ${stage.first_layer} to ${last} · ${stage.address}`;
  item.append(make("b", "", name), make("span", "share"), make("span", "layers", layers), make("span", "where", stage.device), load,
    make("span", "trouble"));
  return item;
}

function showStages(stages) {
  const list = $("stages");
  const first = ({ replica }) => (replicasOf(stages) > 1 ? `Replica ${replica}, stage` : "Stage");
  const shape = JSON.stringify(stages.map((stage) => [stage.replica, stage.address, stage.first_layer, stage.device]));
  if (list.dataset.shape === shape) return;
  list.dataset.shape = shape;
  list.replaceChildren(...stages.map((stage, i) => stageItem(stage, `${first(stage)} ${numberOf(stages, i)}`)));
}

// The share of compute time of each stage since the last look; null: not known.
function shares(stages, before, passed) {
  return stages.map((stage, i) => {
    const known = passed > 0 && stage.compute_ms !== null && (before[i]?.compute_ms ?? null) !== null;
    return known ? Math.max(0, Math.min(1, (stage.compute_ms - before[i].compute_ms) / passed)) : null;
  });
}

function showShares(all) {
  all.forEach((share, i) => {
    const item = $("stages").children[i];
    item.classList.toggle("working", share > 0.005);
    item.querySelector(".load > div").style.width = `${(share ?? 0) * 100}%`;
    item.querySelector(".share").textContent = share === null ? "" : `${Math.round(share * 100)} %`;
  });
}

// A stage is lost while it is replaced, and stalled before that.
function showTroubles(stages, recoveries) {
  const now = recoveries.filter((one) => one.phase);
  stages.forEach((stage, i) => {
    const loss = now.find((one) => one.replica === stage.replica && one.stage === numberOf(stages, i));
    const item = $("stages").children[i];
    item.classList.toggle("lost", Boolean(loss));
    item.classList.toggle("stalled", !loss && Boolean(stage.stalled));
    item.querySelector(".trouble").textContent = loss ? `lost: ${kPhases[loss.phase]}` : stage.stalled;
  });
}

// Lets a stage that was replaced be seen, however short it took.
function flashStage(stages, { replica, stage }) {
  const item = stage === null ? null : $("stages").children[placeOf(stages, replica, stage)];
  if (!item) return;
  item.classList.remove("replaced");
  void item.offsetWidth;  // restarts the animation
  item.classList.add("replaced");
}
