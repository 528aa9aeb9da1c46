"use strict";

// --- The page's view of /metrics ---

// [{name, labels, value}] of a page in Prometheus' text format.
function parseMetrics(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const [, name, labels, value] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line) ?? [];
    if (!name) continue;
    const pairs = [...(labels ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, of]) => [key, of]);
    samples.push({ name, labels: Object.fromEntries(pairs), value: Number(value) });
  }
  return samples;
}

function samplesOf(samples, name, labels = {}) {
  return samples.filter((one) => one.name === name && Object.entries(labels).every(([key, of]) => one.labels[key] === of));
}

const sumOf = (...of) => samplesOf(...of).reduce((sum, one) => sum + one.value, 0);
const mostOf = (...of) => samplesOf(...of).reduce((most, one) => Math.max(most, one.value), 0);
