"use strict";

// --- The pipeline panel, from /status and /metrics ---

const kPollMs = 500;
const kMetricsMs = 2000;
const kChartPoints = 120;
const kStates = { gone: "no answer", key: "key needed" };  // others are told as the server calls them
let status = null;
let last = null;  // {now, s, stages} of the last look
let lastTokens = null;  // {now, n}
let metricsAt = 0;
let pollTimer = null;
let n_polls = 0;  // the latest one asks for the next
const rates = [];

function showState(state, reason = "") {
  const isNew = $("state").dataset.state !== state;
  $("state").dataset.state = state;
  $("state").textContent = kStates[state] ?? state;
  $("reason").textContent = reason;
  $("reason").hidden = !reason;
  if (isNew && state === "gone") announce("The server does not answer");
}

function showChart(rate) {
  rates.push(rate);
  if (rates.length > kChartPoints) rates.shift();
  const most = Math.max(10, ...rates);
  const x = (i) => ((i + kChartPoints - rates.length) * 100) / (kChartPoints - 1);
  const line = rates.map((r, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${(29 - (r / most) * 28).toFixed(1)}`).join("");
  $("chart").querySelector(".line").setAttribute("d", line);
  $("chart").querySelector(".area").setAttribute("d", `${line}L100 30L${x(0).toFixed(1)} 30Z`);
}

function kvUse(groups) {
  return groups.reduce((worst, group) => {
    const share = group.total_blocks ? 1 - group.free_blocks / group.total_blocks : 0;
    return share >= worst.share ? { share, used: group.total_blocks - group.free_blocks, all: group.total_blocks } : worst;
  }, { share: 0, used: 0, all: 0 });
}

function showStatus(next, now) {
  const s = next.scheduler;
  const passed = last ? now - last.now : 0;
  // Counters start at 0 with the server; a smaller value means that the server was restarted.
  const since = (name) => (passed > 0 && s[name] >= last.s[name] ? s[name] - last.s[name] : 0);
  const rate = passed > 0 ? (since("steps") * 1000) / passed : 0;
  const busy = passed > 0 ? Math.min(1, since("in_flight_ms") / passed / replicasOf(next.stages)) : 0;
  const load = shares(next.stages, last?.stages ?? [], passed);
  showStages(next.stages);
  showShares(load);
  showTroubles(next.stages, next.recoveries);
  showState(next.state, next.reason);
  showRecoveries(next.recoveries);
  noteRecoveries(next.recoveries, next.stages);
  last = { now, s, stages: next.stages };
  const types = next.kv_dtype === next.dtype ? next.dtype : `${next.dtype}, KV cache in ${next.kv_dtype}`;
  $("model").textContent = `${next.model}, ${next.max_model_len} tokens of context, ${types}`;
  $("running").textContent = s.running;
  $("waiting").textContent = s.waiting;
  $("inflight").textContent = s.microbatches_in_flight;
  $("rate").textContent = `${Math.round(rate)} /s`;
  $("busy").textContent = `${Math.round(busy * 100)} %`;
  const kv = kvUse(next.kv.groups);
  $("kv").textContent = `${kv.used} of ${kv.all}`;
  $("kvmeter").value = kv.share;
  $("pipeline").classList.toggle("working", busy > 0.01 || s.microbatches_in_flight > 0);
  showChart(rate);
  showStrip(next, load);
}

// The panel in one line, for narrow windows.
function showStrip(next, load) {
  const dot = make("i", "dot");
  const parts = load.map((share, i) => {
    const part = make("span", "mini");
    const bar = make("i");
    bar.style.width = `${(share ?? 0) * 100}%`;
    part.append(bar, String(i));
    return part;
  });
  const rate = $("tokens-rate").textContent.replace(" /s", " tokens/s");
  const words = make("span", "words", next.state === "ready" ? rate : next.state);
  const name = make("span", "unseen", "Pipeline: ");
  $("strip").dataset.state = next.state;
  $("strip").replaceChildren(name, dot, ...parts, words);
}

function showTiers(samples) {
  const block = status.kv.block_tokens;
  const stages = [...new Set(samplesOf(samples, "stagecoach_stage_kv_store_blocks_total").map((one) => one.labels.stage))];
  const fetched = (name, labels) => mostOf(samples, name, labels) * block;
  const rows = [["Device", kvUse(status.kv.groups).used, sumOf(samples, "vllm:prefix_cache_hits_total")]];
  if (stages.length) {
    const host = fetched("stagecoach_stage_host_kv_hits_total");
    const disk = fetched("stagecoach_stage_disk_kv_hits_total");
    const all = fetched("stagecoach_stage_kv_store_blocks_total", { result: "fetched" });
    rows.push(["Host memory", mostOf(samples, "stagecoach_stage_host_kv_blocks"), host]);
    rows.push(["Disk", mostOf(samples, "stagecoach_stage_disk_kv_saves_total"), disk]);
    const saved = mostOf(samples, "stagecoach_stage_kv_store_blocks_total", { result: "saved" });
    rows.push(["Store", saved, Math.max(0, all - host - disk)]);
  }
  // A tier that is off has zeros.
  const shown = rows.filter(([, n, tokens], i) => i === 0 || n + tokens > 0);
  $("tiers").tBodies[0].replaceChildren(...shown.map(([name, n, tokens]) => {
    const row = make("tr");
    const head = make("th", "", name);
    head.scope = "row";
    row.append(head, make("td", "", n.toLocaleString("en")), make("td", "", tokens.toLocaleString("en")));
    return row;
  }));
}

function showTokens(samples, now) {
  const n = sumOf(samples, "vllm:generation_tokens_total");
  const rate = lastTokens && n >= lastTokens.n ? ((n - lastTokens.n) * 1000) / (now - lastTokens.now) : 0;
  lastTokens = { now, n };
  $("tokens-rate").textContent = `${Math.round(rate)} /s`;
}

// Shows what the server says, unless a later poll has begun meanwhile.
async function look(mine) {
  const response = await fetch("/status", { headers: headers() });
  if (mine !== n_polls) return;
  if (response.status === 401) {
    $("model").textContent = "an API key is needed";
    showState("key");
    askForKey(true);
    return;
  }
  if (!response.ok) return;
  const isFirst = !status;
  const next = await response.json();
  if (mine !== n_polls) return;
  status = next;
  showStatus(status, performance.now());
  if (isFirst && !current.messages.length) showChat(current);
  if (performance.now() - metricsAt < kMetricsMs) return;
  metricsAt = performance.now();
  const metrics = await fetch("/metrics", { headers: headers() });
  if (!metrics.ok) return;
  const samples = parseMetrics(await metrics.text());
  if (mine !== n_polls) return;
  showTiers(samples);
  showTokens(samples, metricsAt);
}

async function poll() {
  const mine = ++n_polls;
  if (!document.hidden) {
    try {
      await look(mine);
    } catch {
      if (mine !== n_polls) return;
      $("model").textContent = "the server does not answer";
      $("pipeline").classList.remove("working");
      showState("gone");
      last = null;
    }
  }
  if (mine === n_polls) pollTimer = setTimeout(poll, kPollMs);
}

function pollNow() {
  clearTimeout(pollTimer);
  poll();
}
