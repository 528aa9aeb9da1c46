"use strict";
const $ = (id) => document.getElementById(id);
const make = (tag, className = "", text = "") => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.textContent = text;
  return element;
};
const headers = () => {
  const fields = { "Content-Type": "application/json" };
  if ($("key").value) fields.Authorization = `Bearer ${$("key").value}`;
  return fields;
};

// --- The pipeline, from /status ---

const kPollMs = 500;
const kChartPoints = 120;
let status = null;
let lastPoll = null;
const rates = [];
const replicasOf = (stages) => stages.at(-1).replica + 1;

function showStages(stages) {
  if ($("stages").childElementCount === stages.length) return;
  const replicas = replicasOf(stages);
  const perReplica = stages.length / replicas;
  $("stages").replaceChildren(...stages.map((stage, i) => {
    const item = make("li", "stage");
    const last = stage.first_layer + stage.n_layers - 1;
    const replica = replicas > 1 ? `Replica ${stage.replica}, stage` : "Stage";
    item.append(make("b", "", `${replica} ${i % perReplica}`), make("span", "share"), make("span", "", `layers ${stage.first_layer} to ${last}`),
      make("span", "where", stage.device), make("span", "where", stage.address));
    const load = make("div", "load");
    load.append(make("div"));
    item.append(load);
    return item;
  }));
}

// Shows each stage's share of compute time since the last poll.
function showLoads(stages, before, passed) {
  stages.forEach((stage, i) => {
    const item = $("stages").children[i];
    const known = passed > 0 && stage.compute_ms !== null && before[i]?.compute_ms !== null;
    const share = known ? Math.max(0, Math.min(1, (stage.compute_ms - before[i].compute_ms) / passed)) : 0;
    item.classList.toggle("working", share > 0.005);
    item.querySelector(".load > div").style.width = `${share * 100}%`;
    item.querySelector(".share").textContent = known ? `${Math.round(share * 100)} %` : "";
  });
}

function showStatus(next, now) {
  const s = next.scheduler;
  const passed = lastPoll ? now - lastPoll.now : 0;
  // Counters start at 0 with the server; a smaller value means that the server was restarted.
  const since = (name) => (passed > 0 && s[name] >= lastPoll.s[name] ? s[name] - lastPoll.s[name] : 0);
  const rate = passed > 0 ? (since("steps") * 1000) / passed : 0;
  const busy = passed > 0 ? Math.min(1, since("in_flight_ms") / passed / replicasOf(next.stages)) : 0;
  showStages(next.stages);
  showLoads(next.stages, lastPoll?.stages ?? [], passed);
  lastPoll = { now, s, stages: next.stages };
  $("model").textContent = `${next.model}, ${next.max_model_len} tokens of context, ${next.dtype}`;
  $("running").textContent = s.running;
  $("waiting").textContent = s.waiting;
  $("inflight").textContent = s.microbatches_in_flight;
  $("rate").textContent = `${Math.round(rate)} /s`;
  $("busy").textContent = `${Math.round(busy * 100)} %`;
  const kv = next.kv.groups.reduce((worst, group) => {
    const share = group.total_blocks ? 1 - group.free_blocks / group.total_blocks : 0;
    return share >= worst.share ? { share, used: group.total_blocks - group.free_blocks, all: group.total_blocks } : worst;
  }, { share: 0, used: 0, all: 0 });
  $("kv").textContent = `${kv.used} of ${kv.all}`;
  $("kvmeter").value = kv.share;
  $("pipeline").classList.toggle("working", busy > 0.01 || s.microbatches_in_flight > 0);
  rates.push(rate);
  if (rates.length > kChartPoints) rates.shift();
  const most = Math.max(10, ...rates);
  const x = (i) => ((i + kChartPoints - rates.length) * 100) / (kChartPoints - 1);
  $("chart").firstElementChild.setAttribute("d",
    rates.map((r, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${(29 - (r / most) * 28).toFixed(1)}`).join(""));
}

async function poll() {
  if (!document.hidden) {
    try {
      const response = await fetch("/status", { headers: headers() });
      if (response.ok) {
        status = await response.json();
        showStatus(status, performance.now());
      } else if (response.status === 401) {
        $("model").textContent = "an API key is needed: enter it under Settings";
        $("settings").open = true;
      }
    } catch {
      $("model").textContent = "the server does not answer";
      $("pipeline").classList.remove("working");
      lastPoll = null;
    }
  }
  setTimeout(poll, kPollMs);
}
