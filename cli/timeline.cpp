#include "cli/timeline/timeline.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "common/flags/checks.h"
#include "common/flight/flight_file.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

struct Flags {
  std::vector<std::string> files;
  std::string format = "svg";
  std::string output = "-";
  uint64_t n_steps = 40;
};

absl::StatusOr<std::string> Render(const Flags& flags) {
  std::vector<FlightLog> logs;
  for (const std::string& path : flags.files) {
    SC_ASSIGN_OR_RETURN(logs.emplace_back(), ReadFlightFile(path));
  }
  SC_ASSIGN_OR_RETURN(const timeline::Timeline timeline,
                      timeline::MakeTimeline(logs, flags.n_steps));
  return flags.format == "svg" ? timeline::ToSvg(timeline) : timeline::ToChromeTrace(timeline);
}

int Run(const Flags& flags) {
  const absl::StatusOr<std::string> text = Render(flags);
  if (!text.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(text.status().message()));
    return kExitError;
  }
  std::FILE* const file = flags.output == "-" ? stdout : std::fopen(flags.output.c_str(), "wb");
  const bool written = file != nullptr &&
                       std::fwrite(text->data(), 1, text->size(), file) == text->size() &&
                       std::fflush(file) == 0;
  if (file != nullptr && file != stdout) std::fclose(file);
  if (written) return kExitOk;
  fmt::print(stderr, "error: {} cannot be written\n", flags.output);
  return kExitError;
}

}  // namespace

void AddTimeline(CLI::App& app, Command& command) {
  auto flags = std::make_shared<Flags>();
  CLI::App* timeline = app.add_subcommand(
      "timeline",
      "Draws the last steps of a pipeline over time, with one lane per stage. Reads the files that "
      "router and workers write on SIGUSR1 or when they crash (--flight-recorder)");
  timeline->add_option("files", flags->files, "Flight recorder files, of one or more programs")
      ->type_name("FILE")
      ->required();
  timeline
      ->add_option(
          "--format", flags->format,
          "Output format. svg: a drawing; chrome: events for chrome://tracing and Perfetto")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"svg", "chrome"}))
      ->capture_default_str();
  timeline->add_option("--steps", flags->n_steps, "Number of steps to draw, up to the last one")
      ->type_name("N")
      ->check(MoreThanZero())
      ->capture_default_str();
  timeline->add_option("-o,--output", flags->output, "Output file. -: standard output")
      ->type_name("FILE")
      ->capture_default_str();
  timeline->callback([flags, &command] { command = [flags] { return Run(*flags); }; });
}

}  // namespace stagecoach::cli
