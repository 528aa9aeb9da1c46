#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/quantize/quantize_model.h"
#include "cli/serve_options.h"
#include "common/size.h"

namespace stagecoach::cli {
namespace {

int Quantize(const quantize::QuantizeOptions& options) {
  const bool on_terminal = isatty(STDERR_FILENO) == 1;
  const absl::StatusOr<quantize::QuantizeReport> report =
      quantize::QuantizeModel(options, [&](uint64_t done, uint64_t total) {
        if (!on_terminal) return;
        fmt::print(stderr, "\r{} of {} written\033[K", FormatBytes(done), FormatBytes(total));
      });
  if (on_terminal) fmt::print(stderr, "\r\033[K");
  if (!report.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(report.status().message()));
    return kExitError;
  }
  fmt::print("{}: {}, before {}; {} matrices quantized, {} tensors as they were\n", options.out,
             FormatBytes(report->bytes_after), FormatBytes(report->bytes_before),
             report->n_quantized, report->n_kept);
  return kExitOk;
}

}  // namespace

void AddQuantize(CLI::App& app, Command& command) {
  auto options = std::make_shared<quantize::QuantizeOptions>();
  CLI::App* quantize =
      app.add_subcommand("quantize",
                         "Writes a quantized copy of a checkpoint in the compressed-tensors "
                         "format. transformers and vLLM read it, too. `serve` gives the same "
                         "tokens with the copy as with --quantize and the original");
  quantize->add_option("model", options->model, kModelHelp)->type_name("MODEL")->required();
  quantize->add_option("out", options->out, "New folder for the copy")
      ->type_name("OUT")
      ->required();
  const std::map<std::string, Code> codes = {
      {"fp8", Code::kFp8}, {"int8", Code::kInt8}, {"int4", Code::kInt4}};
  quantize
      ->add_option_function<std::string>(
          "--format", [options, codes](const std::string& word) { options->code = codes.at(word); },
          "Format of the weights. fp8: one scale per row; int8 and int4: one scale per 128 inputs")
      ->type_name("FORMAT")
      ->check(CLI::IsMember(std::vector<std::string>{"fp8", "int8", "int4"}))
      ->required();
  quantize->callback([options, &command] { command = [options] { return Quantize(*options); }; });
}

}  // namespace stagecoach::cli
