#include "cli/suggest.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>
#include <optional>

namespace stagecoach::cli {
namespace {

// Names that other servers use for our flags: vLLM, SGLang, llama.cpp, Ollama, TGI.
struct Foreign {
  std::string_view theirs;  // names, separated by spaces
  std::string_view flag;    // flag that the command must have for this advice; empty: none
  std::string_view advice;
};
constexpr Foreign kForeign[] = {
    {"--model -m --model-path --model-id --hf-repo -hf", "",
     "give the model without a flag: stagecoach serve MODEL"},
    {"--port --host --hostname --listen", "--http", "use --http HOST:PORT, and --grpc HOST:PORT"},
    {"--port --host --url --base-url", "--server", "use --server HOST:PORT"},
    {"--tensor-parallel-size -tp --tp --tp-size --tensor-split -ts --num-shard", "--stages",
     "a model is split by layers: use --stages N"},
    {"--pipeline-parallel-size -pp --pp --pp-size", "--stages", "use --stages N"},
    {"--data-parallel-size -dp --dp --dp-size", "--stages",
     "start one server per copy of the model"},
    {"--quantization -q --quantize --load-in-4bit --torchao-config", "",
     "weights keep the checkpoint's encoding: use a quantized .gguf file"},
    {"--gpu-memory-utilization --mem-fraction-static --cuda-memory-fraction", "--memory-fraction",
     "use --memory-fraction F"},
    {"--kv-cache-memory-bytes --max-total-tokens", "--kv-memory", "use --kv-memory SIZE"},
    {"--max-model-length --context-length --ctx-size -c --max-seq-len --max-total-length",
     "--max-model-len", "use --max-model-len N"},
    {"--max-num-seqs --max-running-requests --parallel -np --max-concurrent-requests",
     "--max-sequences", "use --max-sequences N"},
    {"--max-num-batched-tokens --batch-size -b --max-batch-prefill-tokens", "--max-batched-tokens",
     "use --max-batched-tokens N"},
    {"--chunked-prefill-size --ubatch-size -ub --long-prefill-token-threshold", "--prefill-chunk",
     "use --prefill-chunk N"},
    {"--enable-chunked-prefill --no-enable-chunked-prefill", "--prefill-chunk",
     "prompts are always computed in chunks: --prefill-chunk N sets their size"},
    {"--enable-prefix-caching --no-enable-prefix-caching --disable-radix-cache --cache-prompt",
     "--prefix-cache", "use --prefix-cache on|off"},
    {"--served-model-name --alias -a", "--served-name", "use --served-name NAME"},
    {"--api-key --api-key-file", "--api-keys", "keys are read from a file: use --api-keys FILE"},
    {"--ssl-keyfile --ssl-key-file", "--tls-key", "use --tls-key FILE"},
    {"--ssl-certfile --ssl-cert-file", "--tls-cert", "use --tls-cert FILE"},
    {"--allowed-origins --cors-allow-origin", "--cors", "use --cors ORIGIN"},
    {"--n-gpu-layers -ngl --gpu-layers", "--device",
     "all layers of a stage run on one device: use --device cuda"},
    {"--threads -t --threads-http", "--threads-per-worker", "use --threads-per-worker N"},
    {"--lora --lora-modules --lora-paths --enable-lora", "--merge-adapter",
     "one adapter is merged into the weights: use --merge-adapter DIR"},
    {"--trust-remote-code", "", "omit it: code from a checkpoint is never run"},
    {"--swap-space --cpu-offload-gb", "", "omit it: nothing is swapped or offloaded"},
    {"--disable-log-requests --no-enable-log-requests --enable-log-requests", "--request-log",
     "use --request-log on|off"},
    {"--disable-log-stats --decode-log-interval", "--stats-log-interval",
     "use --stats-log-interval S; 0 disables it"},
    {"--uvicorn-log-level --verbosity -v --verbose", "--log-level", "use --log-level LEVEL"},
    {"--max-new-tokens --n-predict --max-length", "--max-tokens", "use --max-tokens N"},
    {"--temp", "--temperature", "use --temperature X"},
    {"--repeat-penalty", "--repetition-penalty", "use --repetition-penalty X"},
    {"--num-prompts", "--requests", "use --requests N"},
    {"--max-concurrency", "--concurrency", "use --concurrency N"},
    {"--random-input-len --input-len", "--input-tokens", "use --input-tokens N"},
    {"--random-output-len --output-len", "--output-tokens", "use --output-tokens N"},
};

// Edit distance: the number of insertions, deletions, changes and swaps of neighbouring characters
// that turn `a` into `b`.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                             cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

bool HasWord(std::string_view words, std::string_view word) {
  for (size_t at = words.find(word); at != words.npos; at = words.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) {
      return true;
    }
  }
  return false;
}

// The innermost subcommand named on the command line.
const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  return named.empty() ? app : Innermost(*named.front());
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_name().empty()) names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  // CLI11 represents an option group as a subcommand without a name.
  for (const CLI::App* group : app.get_subcommands({})) {
    if (!group->get_name().empty()) continue;
    for (std::string& name : FlagsOf(*group)) names.push_back(std::move(name));
  }
  return names;
}

std::string Advice(const std::string& flag, const std::vector<std::string>& flags) {
  for (const Foreign& foreign : kForeign) {
    if (!HasWord(foreign.theirs, flag)) continue;
    const bool fits =
        foreign.flag.empty() || std::find(flags.begin(), flags.end(), foreign.flag) != flags.end();
    if (fits) return fmt::format("; {}", foreign.advice);
  }
  const std::string nearest = Nearest(flag, flags);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

}  // namespace

std::string Nearest(std::string_view word, std::span<const std::string> known) {
  std::string nearest;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = Distance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string UnknownWords(const CLI::App& app, std::span<const std::string> arguments) {
  const CLI::App& command = Innermost(app);
  const std::vector<std::string> left = app.remaining(true);
  std::string text;
  const auto add = [&text](const std::string& line) {
    if (!text.empty()) text += '\n';
    text += line;
  };
  const std::vector<std::string> flags = FlagsOf(command);
  std::vector<std::string> told;
  for (const std::string& argument : arguments) {
    if (!argument.starts_with('-') || argument == "--") continue;
    const std::string flag = argument.substr(0, argument.find('='));
    const bool is_left = std::any_of(left.begin(), left.end(), [&](const std::string& word) {
      return word.substr(0, word.find('=')) == flag;
    });
    if (!is_left || std::find(told.begin(), told.end(), flag) != told.end()) continue;
    told.push_back(flag);
    add(fmt::format("unknown flag {}{}", flag, Advice(flag, flags)));
  }
  if (!text.empty()) return text;
  const std::vector<std::string> commands = CommandsOf(command);
  for (const std::string& argument : arguments) {
    if (std::find(left.begin(), left.end(), argument) == left.end()) continue;
    if (commands.empty()) {
      add(fmt::format("unexpected argument {}", argument));
      continue;
    }
    const std::string nearest = Nearest(argument, commands);
    add(fmt::format("unknown command {}{}", argument,
                    nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
    break;  // the words after it were its arguments
  }
  return text;
}

}  // namespace stagecoach::cli
