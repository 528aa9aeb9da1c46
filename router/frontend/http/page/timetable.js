"use strict";

// --- The tool of the demonstration: the timetable that the demo model knows, looked up in the page. The constants are those
// of deploy/demo-model-training/timetable.py; a test compares the answers. ---

const kConnectionMin = 10;  // shortest change between two lines, in minutes
const kDwellMin = 5;  // how long a coach waits at a stop
// Driving minutes of each segment, and the starts of the coaches in minutes after midnight: out, from the first stop to the
// last, and back.
const kLines = [
  { stops: ["Alderwick", "Brindle", "Coldwater", "Dunmoor", "Elmstead"], minutes: [35, 45, 30, 55],
    out: { weekday: [390, 505, 665, 780, 935, 1060], saturday: [425, 590, 750, 915, 1065], sunday: [450, 750, 1065] },
    back: { weekday: [375, 510, 645, 800, 925, 1050], saturday: [435, 595, 755, 905, 1070], sunday: [425, 745, 1080] } },
  { stops: ["Foxhollow", "Coldwater", "Greywell", "Hartsfield"], minutes: [40, 50, 25],
    out: { weekday: [380, 505, 650, 805, 925, 1055], saturday: [440, 605, 755, 900, 1080], sunday: [440, 750, 1055] },
    back: { weekday: [390, 520, 640, 805, 910, 1055], saturday: [425, 595, 765, 905, 1055], sunday: [435, 755, 1075] } },
  { stops: ["Juniper", "Brindle", "Greywell", "Inkwell"], minutes: [30, 60, 45],
    out: { weekday: [360, 520, 635, 805, 910, 1065], saturday: [445, 590, 750, 905, 1075], sunday: [420, 745, 1050] },
    back: { weekday: [370, 510, 650, 800, 910, 1080], saturday: [450, 600, 745, 905, 1075], sunday: [450, 740, 1065] } },
];
const kStops = [...new Set(kLines.flatMap((line) => line.stops))].sort();
const kDays = ["weekday", "saturday", "sunday"];
const kDepartures = {
  type: "function",
  function: {
    name: "departures",
    description: "All coaches from one stop to another on a day, with the times of departure and arrival.",
    parameters: {
      type: "object",
      properties: { from: { type: "string", enum: kStops }, to: { type: "string", enum: kStops }, day: { type: "string", enum: kDays } },
      required: ["from", "to", "day"],
      additionalProperties: false,
    },
  },
};

const clock = (minutes) => `${String(Math.floor(minutes / 60)).padStart(2, "0")}:${String(minutes % 60).padStart(2, "0")}`;

// Minutes from the departure at stop `from` to the arrival at stop `to`, with the waits between.
function ride(minutes, from, to) {
  return minutes.slice(from, to).reduce((sum, one) => sum + one, 0) + (to - from - 1) * kDwellMin;
}

function legs(line, from, to, day) {
  const isOut = line.stops.indexOf(from) < line.stops.indexOf(to);
  const stops = isOut ? line.stops : [...line.stops].reverse();
  const minutes = isOut ? line.minutes : [...line.minutes].reverse();
  const [i, j] = [stops.indexOf(from), stops.indexOf(to)];
  return line[isOut ? "out" : "back"][day].map((start) => {
    const departure = i === 0 ? start : start + ride(minutes, 0, i) + kDwellMin;
    return { departure, arrival: departure + ride(minutes, i, j) };
  });
}

const driving = (line, a, b) => {
  const [i, j] = [line.stops.indexOf(a), line.stops.indexOf(b)].sort((x, y) => x - y);
  return line.minutes.slice(i, j).reduce((sum, one) => sum + one, 0);
};

function journeys(from, to, day) {
  const direct = kLines.find((line) => line.stops.includes(from) && line.stops.includes(to));
  if (direct) return legs(direct, from, to, day);
  let best = null;
  for (const first of kLines.filter((line) => line.stops.includes(from))) {
    for (const second of kLines.filter((line) => line.stops.includes(to))) {
      const change = first.stops.find((stop) => second.stops.includes(stop));
      const minutes = driving(first, from, change) + driving(second, change, to);
      if (!best || minutes < best.minutes) best = { first, second, change, minutes };
    }
  }
  const { first, second, change } = best;
  const found = new Map();  // by the second coach: a later first one waits less
  for (const one of legs(first, from, change, day)) {
    const next = legs(second, change, to, day).find((other) => other.departure >= one.arrival + kConnectionMin);
    if (next) found.set(next.departure, { departure: one.departure, arrival: next.arrival });
  }
  return [...found.values()];
}

// The result of a call as the model gets it. The model may have written anything as arguments.
function departures(text) {
  let given;
  try {
    given = JSON.parse(text);
  } catch {
    return { error: "the arguments are no JSON" };
  }
  const { from, to, day } = given ?? {};
  if (!kStops.includes(from) || !kStops.includes(to)) return { error: `the stops are ${kStops.join(", ")}` };
  if (!kDays.includes(day)) return { error: `the days are ${kDays.join(", ")}` };
  if (from === to) return { error: "from and to are the same stop" };
  return {
    from, to, day,
    departures: journeys(from, to, day).map((one) => ({ departure: clock(one.departure), arrival: clock(one.arrival) })),
  };
}
