#include "cli/suggest.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "absl/strings/str_replace.h"
#include "cli/command_tree.h"

namespace stagecoach::cli {
namespace {

// Names that other servers use for our flags: vLLM, SGLang, llama.cpp, Ollama, TGI.
struct Foreign {
  std::string_view theirs;      // names, separated by spaces
  std::string_view flag;        // flag that the command must have for this advice; empty: none
  std::string_view advice;      // "%" stands for the user's value
  std::string_view value = "";  // stands for "%" if the user gave no value
};
constexpr Foreign kForeign[] = {
    {"--model -m --model-path --model-id --hf-repo -hf", "MODEL",
     "give the model without a flag: stagecoach serve %", "MODEL"},
    {"--port", "--http", "use --http 127.0.0.1:%, and --grpc HOST:PORT", "PORT"},
    {"--host --hostname --listen", "--http", "use --http %:8000, and --grpc HOST:PORT", "HOST"},
    {"--port", "--server",
     "use --server 127.0.0.1:% for gRPC, --server http://127.0.0.1:% for HTTP", "PORT"},
    {"--host --url --base-url", "--server",
     "use --server HOST:PORT for gRPC, --server http://HOST:PORT for HTTP"},
    {"--tensor-parallel-size -tp --tp --tp-size --num-shard", "--stages",
     "a model is split by layers, not within them: use --stages %", "N"},
    {"--tensor-split -ts", "--layer-split",
     "a model is split by layers: use --stages N, and --layer-split with layers for each stage"},
    {"--pipeline-parallel-size -pp --pp --pp-size", "--stages", "use --stages %", "N"},
    {"--data-parallel-size -dp --dp --dp-size", "--replicas", "use --replicas %", "N"},
    {"--quantization -q --quantize --load-in-4bit --torchao-config", "",
     "weights keep the checkpoint's encoding: use a quantized checkpoint"},
    {"--gpu-memory-utilization --mem-fraction-static --cuda-memory-fraction", "--memory-fraction",
     "use --memory-fraction %, the same share", "F"},
    {"--kv-cache-memory-bytes", "--kv-memory", "use --kv-memory %, also in bytes", "SIZE"},
    {"--max-total-tokens", "--kv-memory",
     "use --kv-memory SIZE; `stagecoach check` says the bytes of a token"},
    {"--kv-cache-dtype --cache-type-k --cache-type-v -ctk -ctv", "--kv-dtype",
     "use --kv-dtype fp8 for a smaller KV cache; by default it has the type of the weights"},
    {"--max-model-length --context-length --max-seq-len --max-total-length", "--max-model-len",
     "use --max-model-len %, also in tokens", "N"},
    {"--ctx-size -c", "--max-model-len",
     "use --max-model-len %: tokens of one sequence, not of all together; 0 is the model's limit",
     "N"},
    {"--max-num-seqs --max-running-requests --parallel -np --max-concurrent-requests",
     "--max-sequences", "use --max-sequences %, the same number", "N"},
    {"--max-num-batched-tokens --batch-size -b --max-batch-prefill-tokens", "--max-batched-tokens",
     "use --max-batched-tokens %, the same number", "N"},
    {"--chunked-prefill-size --ubatch-size -ub --long-prefill-token-threshold", "--prefill-chunk",
     "use --prefill-chunk %, the same number", "N"},
    {"--enable-chunked-prefill --no-enable-chunked-prefill", "--prefill-chunk",
     "prompts are always computed in chunks: --prefill-chunk N sets their size"},
    {"--enable-prefix-caching --cache-prompt", "--prefix-cache",
     "omit it: --prefix-cache is on by default"},
    {"--no-enable-prefix-caching --disable-radix-cache --no-cache-prompt", "--prefix-cache",
     "use --prefix-cache off"},
    {"--served-model-name --alias -a", "--served-name", "use --served-name %", "NAME"},
    {"--api-key --api-key-file", "--api-keys", "keys are read from a file: use --api-keys FILE"},
    {"--ssl-keyfile --ssl-key-file", "--tls-key", "use --tls-key %", "FILE"},
    {"--ssl-certfile --ssl-cert-file", "--tls-cert", "use --tls-cert %", "FILE"},
    {"--allowed-origins --cors-allow-origin", "--cors", "use --cors %", "ORIGIN"},
    {"--n-gpu-layers -ngl --gpu-layers", "--device",
     "all layers of a stage run on one device: use --device cuda"},
    {"--threads -t", "--threads-per-worker", "use --threads-per-worker %, the same number", "N"},
    {"--threads-http", "", "omit it: one thread serves all HTTP connections"},
    {"--lora --lora-modules --lora-paths --enable-lora", "--merge-adapter",
     "one adapter is merged into the weights: use --merge-adapter DIR"},
    {"--trust-remote-code", "", "omit it: code from a checkpoint is never run"},
    {"--swap-space --cpu-offload-gb", "--host-kv",
     "weights are not offloaded; --host-kv SIZE keeps KV blocks in host memory"},
    {"--enable-auto-tool-choice --tool-call-parser --jinja", "--chat-template",
     "omit it: the checkpoint's chat template tells the form of tool calls"},
    {"--reasoning-parser --reasoning-format", "--chat-template",
     "omit it: reasoning is found by the checkpoint's chat template"},
    {"--enforce-eager --flash-attn -fa --mlock --no-mmap --cont-batching -cb", "--stages",
     "omit it: there is nothing to choose"},
    {"--disable-log-requests --no-enable-log-requests", "--request-log", "use --request-log off"},
    {"--enable-log-requests --log-requests", "--request-log",
     "omit it: --request-log is on by default"},
    {"--disable-log-stats --decode-log-interval", "--log-level",
     "while requests run, the log has a line about throughput every ten seconds; --log-level "
     "warning leaves it out"},
    {"--uvicorn-log-level --verbosity -v --verbose", "--log-level", "use --log-level LEVEL"},
    {"--max-new-tokens --n-predict --max-length", "--max-tokens", "use --max-tokens %", "N"},
    {"--temp", "--temperature", "use --temperature %", "X"},
    {"--repeat-penalty", "--repetition-penalty", "use --repetition-penalty %", "X"},
    {"--num-prompts", "--requests", "use --requests %", "N"},
    {"--max-concurrency", "--concurrency", "use --concurrency %", "N"},
    {"--random-input-len --input-len", "--input-tokens", "use --input-tokens %", "N"},
    {"--random-output-len --output-len", "--output-tokens", "use --output-tokens %", "N"},
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

// What the user gave as the value of a flag; empty: nothing that looks like one.
std::string ValueOf(std::span<const std::string> arguments, const std::string& flag) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with(flag + "=")) return arguments[i].substr(flag.size() + 1);
    if (arguments[i] != flag || i + 1 == arguments.size()) continue;
    return arguments[i + 1].starts_with('-') ? "" : arguments[i + 1];
  }
  return "";
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

std::string Advice(const std::string& flag, const CLI::App& command, const std::string& value) {
  std::vector<std::string> names;
  for (const CLI::Option* option : OptionsOf(command)) names.push_back(NameOf(*option));
  for (const Foreign& foreign : kForeign) {
    if (!HasWord(foreign.theirs, flag)) continue;
    const bool fits =
        foreign.flag.empty() || std::find(names.begin(), names.end(), foreign.flag) != names.end();
    if (!fits) continue;
    const std::string shown = value.empty() ? std::string(foreign.value) : value;
    return "; " + absl::StrReplaceAll(std::string(foreign.advice), {{"%", shown}});
  }
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("--"); });
  const std::string nearest = Nearest(flag, names);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

std::string UnknownWords(const CLI::App& app, std::span<const std::string> arguments) {
  const CLI::App& command = Innermost(app);
  const std::vector<std::string> left = app.remaining(true);
  std::string text;
  const auto add = [&text](const std::string& line) {
    if (!text.empty()) text += '\n';
    text += line;
  };
  std::vector<std::string> told;
  for (const std::string& argument : arguments) {
    if (!argument.starts_with('-') || argument == "--") continue;
    const std::string flag = argument.substr(0, argument.find('='));
    const bool is_left = std::any_of(left.begin(), left.end(), [&](const std::string& word) {
      return word.substr(0, word.find('=')) == flag;
    });
    if (!is_left || std::find(told.begin(), told.end(), flag) != told.end()) continue;
    told.push_back(flag);
    add(fmt::format("unknown flag {}{}", flag, Advice(flag, command, ValueOf(arguments, flag))));
  }
  if (!text.empty()) return text;
  std::vector<std::string> commands;
  for (const CLI::App* one : CommandsOf(command)) commands.push_back(one->get_name());
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
