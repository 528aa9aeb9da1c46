#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/timeline/timeline.h"

namespace stagecoach::timeline {
namespace {

// Sizes in pixels.
constexpr double kLeft = 84;
constexpr double kRight = 16;
constexpr double kTop = 64;
constexpr double kRow = 34;  // height of a stage's bars
// Height of a step in flight; several are stacked.
constexpr double kFlight = 14;
constexpr double kLaneGap = 14;
constexpr double kAxis = 34;
constexpr double kLeastWidth = 900;
constexpr double kMostWidth = 12'000;
// Width per step, so that a step's number fits on its bar.
constexpr double kPerStep = 26;
// A bar of at least this width shows its step number.
constexpr double kLabelWidth = 26;

// Colours are literals: programs other than browsers do not support CSS variables, and few support
// @media.
constexpr char kStyle[] = R"(
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.small { font-size: 10.5px; fill: #59636e; }
.on { font-size: 10.5px; fill: #ffffff; text-anchor: middle; pointer-events: none; }
.title { font-size: 14px; font-weight: 600; }
.grid { stroke: #d8dee4; stroke-width: 1; }
.page { fill: #ffffff; }
.prefill { fill: #8250df; }
.decode { fill: #0969da; }
.mixed { fill: #0e7a7a; }
.wait { fill: #e6b450; }
.send, .dispatch { fill: #bc4c00; }
.flight { fill: #b6c2cf; }
.recovery { fill: #cf222e; }
.open { stroke: #cf222e; stroke-width: 2; stroke-dasharray: 4 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .small { fill: #9198a1; }
  .on { fill: #ffffff; }
  .grid { stroke: #2d333b; }
  .page { fill: #0d1117; }
  .prefill { fill: #8957e5; }
  .decode { fill: #1f6feb; }
  .mixed { fill: #12807f; }
  .wait { fill: #9e7a1f; }
  .send, .dispatch { fill: #db6d28; }
  .flight { fill: #465363; }
  .recovery { fill: #da3633; }
  .open { stroke: #ff7b72; }
}
)";

const char* ClassOf(const Span& span) {
  switch (span.doing) {
    case Doing::kDispatch:
      return "dispatch";
    case Doing::kInFlight:
      return "flight";
    case Doing::kRecover:
      return "recovery";
    case Doing::kWaitInput:
      return "wait";
    case Doing::kSend:
      return "send";
    case Doing::kCompute:
      break;
  }
  if (span.n_prefill_tokens == 0) return "decode";
  return span.n_decode_tokens == 0 ? "prefill" : "mixed";
}

std::string Duration(int64_t ns) {
  return ns < 1'000'000 ? fmt::format("{:.0f} us", static_cast<double>(ns) / 1e3)
                        : fmt::format("{:.2f} ms", static_cast<double>(ns) / 1e6);
}

// The smallest value of the form 1, 2 or 5 times a power of ten that is at least `ns`.
int64_t RoundUp(double ns) {
  const double power = std::pow(10, std::floor(std::log10(std::max(ns, 1.0))));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= ns) return static_cast<int64_t>(factor * power);
  }
  return static_cast<int64_t>(10 * power);
}

class Drawing {
 public:
  explicit Drawing(const Timeline& timeline) : timeline_(timeline) {
    const auto n_steps = static_cast<double>(timeline.last_step - timeline.first_step + 1);
    width_ = std::clamp(kLeft + kRight + kPerStep * n_steps * n_stages(), kLeastWidth, kMostWidth);
  }

  std::string Draw() {
    double y = kTop;
    for (const Lane& lane : timeline_.lanes) y += DrawLane(lane, y) + kLaneGap;
    const double height = y + kAxis;
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\">\n<title>stagecoach timeline</title>\n<style>{2}</style>\n"
        "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
        width_, height, kStyle);
    out +=
        fmt::format("<text class=\"title\" x=\"12\" y=\"22\">Steps {} to {}: {} in {}</text>\n",
                    timeline_.first_step, timeline_.last_step,
                    timeline_.last_step - timeline_.first_step + 1, Duration(timeline_.length_ns));
    DrawLegend(&out);
    DrawAxis(y, &out);
    return out + body_ + "</svg>\n";
  }

 private:
  double n_stages() const {
    return std::max<double>(1, static_cast<double>(timeline_.lanes.size()) - 1);
  }

  double X(int64_t ns) const {
    const auto length = static_cast<double>(std::max<int64_t>(timeline_.length_ns, 1));
    return kLeft + (width_ - kLeft - kRight) * static_cast<double>(ns) / length;
  }

  // Draws the lane and returns its height.
  double DrawLane(const Lane& lane, double y) {
    // rows: for each row of a router's lane, the time at which it is free again. row_of: the row of
    // each step.
    std::vector<int64_t> rows;
    std::map<uint64_t, size_t> row_of;
    for (const Span& span : lane.spans) {
      if (!IsRouters(span.doing)) {
        DrawBar(span, y, kRow);
        continue;
      }
      const auto free =
          std::find_if(rows.begin(), rows.end(), [&](int64_t end) { return end <= span.begin_ns; });
      const size_t row =
          row_of.try_emplace(span.step, static_cast<size_t>(free - rows.begin())).first->second;
      if (row == rows.size()) rows.push_back(0);
      rows[row] = std::max(rows[row], EndOf(lane, span));
      DrawBar(span, y + static_cast<double>(row) * kFlight, kFlight - 2);
    }
    const double height = std::max(kRow, static_cast<double>(rows.size()) * kFlight);
    body_ += fmt::format("<text x=\"12\" y=\"{:.1f}\">{}</text>\n", y + height / 2 + 4, lane.name);
    return height;
  }

  // End of the last span of the step, which occupies its row until then.
  static int64_t EndOf(const Lane& lane, const Span& span) {
    int64_t end = span.end_ns;
    for (const Span& other : lane.spans) {
      if (other.step == span.step) end = std::max(end, other.end_ns);
    }
    return end;
  }

  void DrawBar(const Span& span, double y, double height) {
    const double x = X(span.begin_ns);
    const double width = std::max(X(span.end_ns) - x, 0.4);
    body_ += fmt::format(
        "<rect class=\"{}{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\">"
        "<title>step {}: {}, {}{}; {} prompt tokens, {} decodes</title></rect>\n",
        ClassOf(span), span.open ? " open" : "", x, y, width, height, span.step, Name(span.doing),
        Duration(span.end_ns - span.begin_ns), span.open ? ", not ended" : "",
        span.n_prefill_tokens, span.n_decode_tokens);
    const bool labelled = span.doing == Doing::kCompute;
    if (labelled && width >= kLabelWidth) {
      body_ += fmt::format("<text class=\"on\" x=\"{:.2f}\" y=\"{:.1f}\">{}</text>\n",
                           x + width / 2, y + height / 2 + 4, span.step);
    }
  }

  static void DrawLegend(std::string* out) {
    constexpr std::array<std::array<const char*, 2>, 7> kEntries = {
        {{"prefill", "compute: prompts"},
         {"decode", "compute: decodes"},
         {"mixed", "compute: both"},
         {"wait", "wait for input"},
         {"send", "send"},
         {"flight", "in flight"},
         {"recovery", "recovery"}}};
    double x = 12;
    for (const auto& [name, text] : kEntries) {
      *out += fmt::format(
          "<rect class=\"{}\" x=\"{:.0f}\" y=\"36\" width=\"12\" height=\"12\" rx=\"2\"/>"
          "<text class=\"small\" x=\"{:.0f}\" y=\"46\">{}</text>\n",
          name, x, x + 17, text);
      x += 40 + 6.2 * static_cast<double>(std::string_view(text).size());
    }
  }

  void DrawAxis(double y, std::string* out) const {
    const auto length = static_cast<double>(timeline_.length_ns);
    const int64_t step_ns = RoundUp(length * 110 / (width_ - kLeft - kRight));
    for (int64_t at = 0; at <= timeline_.length_ns; at += step_ns) {
      *out += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"/>"
          "<text class=\"small\" x=\"{0:.1f}\" y=\"{3:.0f}\" text-anchor=\"middle\">{4}</text>\n",
          X(at), kTop - 6, y, y + 16, at == 0 ? "0" : Duration(at));
    }
  }

  const Timeline& timeline_;
  double width_ = 0;
  std::string body_;
};

}  // namespace

std::string ToSvg(const Timeline& timeline) { return Drawing(timeline).Draw(); }

}  // namespace stagecoach::timeline
