#include "common/flags/pipeline_flags.h"

#include "common/flags/checks.h"
#include "common/flags/flag_table.h"

namespace stagecoach {
namespace {

using Config = v1::LoadConfig;

constexpr FlagTable::Choice<v1::DType> kDTypes[] = {{"auto", v1::DTYPE_UNSPECIFIED},
                                                    {"float32", v1::DTYPE_FLOAT32},
                                                    {"bfloat16", v1::DTYPE_BFLOAT16}};
constexpr FlagTable::Choice<v1::LoadFormat> kLoadFormats[] = {{"auto", v1::LOAD_FORMAT_AUTO},
                                                              {"dummy", v1::LOAD_FORMAT_DUMMY}};
constexpr FlagTable::Choice<v1::Quantize> kQuantize[] = {{"off", v1::QUANTIZE_NONE},
                                                         {"fp8", v1::QUANTIZE_FP8},
                                                         {"int8", v1::QUANTIZE_INT8},
                                                         {"int4", v1::QUANTIZE_INT4}};
constexpr FlagTable::Choice<v1::KvDType> kKvDTypes[] = {{"auto", v1::KV_DTYPE_AUTO},
                                                        {"fp8", v1::KV_DTYPE_FP8}};
constexpr FlagTable::Choice<v1::HiddenDType> kHiddenDTypes[] = {
    {"float32", v1::HIDDEN_DTYPE_FLOAT32}, {"bfloat16", v1::HIDDEN_DTYPE_BFLOAT16}};
constexpr FlagTable::Choice<MeasureStages> kMeasureStages[] = {
    {"auto", MeasureStages::kAuto}, {"on", MeasureStages::kOn}, {"off", MeasureStages::kOff}};

void DeclareModelFlags(FlagTable& table, PipelineFlags& flags) {
  Config& config = flags.load.config;
  DeclareDType(table, config);
  DeclareQuantize(table, config);
  DeclareKvDType(table, config);
  DeclareHiddenDType(table, config);
  table
      .AddChoice(
          "--load-format", Field(config, &Config::load_format, &Config::set_load_format),
          kLoadFormats,
          "auto: read the checkpoint's weights; dummy: random weights, only config.json is read")
      ->type_name("FORMAT");
  table
      .Add("--merge-adapter", Field(config, &Config::adapter_dir, &Config::set_adapter_dir),
           "Folder of a LoRA adapter that is merged into the weights while they are read. It has "
           "adapter_config.json, and the adapter's weights unless they are in the checkpoint")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory);
  table
      .Add("--layer-split", flags.load.layer_split,
           "Number of layers of each stage, such as 3,5 (default: balanced)")
      ->type_name("N,N...")
      ->check(MoreThanZero());
  table
      .AddChoice("--measure-stages", flags.load.measure_stages, kMeasureStages,
                 "Measure speed and memory of each stage's device before layers are balanced, so "
                 "that a faster or larger one gets more of them; auto: if devices differ")
      ->type_name("WHEN");
  table
      .Add("--chat-template", flags.chat_template,
           "Jinja file to use instead of the checkpoint's chat template")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  table
      .Add("--max-model-len", Field(config, &Config::max_model_len, &Config::set_max_model_len),
           "Longest sequence, prompt and completion together, in tokens; 0: the limit of "
           "config.json, reduced to what the KV memory holds")
      ->type_name("N")
      ->check(ZeroOrMore())
      ->capture_default_str();
}

void DeclareMemoryFlags(FlagTable& table, Config& config) {
  table.AddSize("--kv-memory",
                Field(config, &Config::kv_memory_bytes, &Config::set_kv_memory_bytes),
                "Memory for the KV cache of each stage, such as 512MiB or 4GB (default: each "
                "worker takes a share of the free memory)");
  table
      .Add("--memory-fraction",
           Field(config, &Config::memory_fraction, &Config::set_memory_fraction),
           "Share of a GPU's memory that its worker may use for weights, scratch memory and "
           "KV cache; ignored on CPUs")
      ->type_name("F")
      ->check(Between(0.01, 1.0))
      ->capture_default_str();
  table
      .Add("--kv-store", Field(config, &Config::kv_store, &Config::set_kv_store),
           "Store that servers of the same model share computed KV blocks through: "
           "redis://[USER:PASSWORD@]HOST[:PORT][/DB][?ttl=SECONDS&quota=SIZE], rediss:// for TLS, "
           "or dir:PATH "
           "for a folder. A prompt with a prefix that another server has computed is then computed "
           "only from where they differ (default: none)")
      ->type_name("URL")
      ->envname("STAGECOACH_KV_STORE");
  table.AddSize("--host-kv", Field(config, &Config::host_kv_bytes, &Config::set_host_kv_bytes),
                "Host memory of each stage that keeps KV blocks after the device has reused their "
                "place, such as 16GiB. A prompt with their tokens is then not computed again. "
                "Blocks of --disk-kv and --kv-store pass through it (default: 1GiB with one of "
                "these, else none)");
  table
      .Add("--disk-kv", Field(config, &Config::disk_kv, &Config::set_disk_kv),
           "Folder on a disk of the workers' machine that keeps KV blocks for which --host-kv has "
           "no room, also after a restart; all workers of the machine together use up to SIZE, "
           "such as /mnt/kv:200GiB (default: none; without SIZE half of what is free)")
      ->type_name("DIR[:SIZE]");
  table
      .Add("--max-sequences", Field(config, &Config::max_sequences, &Config::set_max_sequences),
           "Maximum number of sequences that run at the same time (default: 256; on several GPUs "
           "the larger of 1024 and 256 per stage)")
      ->type_name("N")
      ->check(MoreThanZero());
  table
      .Add("--max-batched-tokens",
           Field(config, &Config::max_batched_tokens, &Config::set_max_batched_tokens),
           "Maximum number of tokens in one step, up to 262144 (default: 512; on GPUs 8192). "
           "More speeds up prefill, but other requests wait longer for their next token")
      ->type_name("N")
      ->check(Between(1, 262'144));
  table
      .Add("--prefill-chunk",
           Field(config, &Config::max_prefill_chunk, &Config::set_max_prefill_chunk),
           "Maximum number of prompt tokens of one sequence in one step (default: "
           "--max-batched-tokens)")
      ->type_name("N")
      ->check(ZeroOrMore());
}

void DeclareSchedulerFlags(FlagTable& table, PipelineFlags& flags) {
  SchedulerFlags& scheduler = flags.scheduler;
  Config& config = flags.load.config;
  table
      .Add("--max-waiting", scheduler.max_waiting,
           "Maximum number of requests that may wait; more are refused with RESOURCE_EXHAUSTED")
      ->type_name("N")
      ->check(ZeroOrMore())
      ->capture_default_str();
  table
      .Add("--max-waiting-tokens", scheduler.max_waiting_tokens,
           "Maximum number of prompt tokens of all waiting requests together; each choice of "
           "a request counts. More are refused, unless nothing else waits")
      ->type_name("N")
      ->check(ZeroOrMore())
      ->capture_default_str();
  table.AddSize(
      "--request-memory", flags.request_memory_bytes,
      "Router memory for all requests together: bodies and messages, prompts that are "
      "tokenized, answers that wait for their client. Requests up to 64 KiB do not count. What "
      "does not fit is refused. A prompt of N bytes takes about 48 N while it is tokenized "
      "[256MiB]");
  table
      .Add("--max-logprobs", Field(config, &Config::max_logprobs, &Config::set_max_logprobs),
           "Maximum number of most likely tokens that a request may ask for at each position")
      ->type_name("N")
      ->check(ZeroOrMore())
      ->capture_default_str();
  table.AddSwitch("--plan-ahead", scheduler.plan_ahead,
                  "Plan the next step before the tokens of the last one are known; this does not "
                  "change any token [on]");
  table.AddSwitch("--prefix-cache", scheduler.prefix_cache,
                  "Keep computed KV blocks until their memory is needed. A prompt with the same "
                  "prefix as an earlier one is then computed only from where they differ [on]");
  table
      .Add("--replicas", flags.replicas,
           "Pipelines with the same model behind one router, each with all stages. A request goes "
           "to the one that has computed most of its prompt and has least to do")
      ->type_name("N")
      ->check(Between(1, 64))
      ->capture_default_str();
  table
      .Add("--microbatches", flags.microbatches,
           "Groups into which the running sequences are divided for decoding, so that all stages "
           "work at the same time. If there are several, one more is used while prompts fill the "
           "steps (default: one per stage; 1 if the stages share their cores)")
      ->type_name("N")
      ->check(ZeroOrMore());
  table.Add("--preempt-every", scheduler.preempt_every, "")->group("")->check(ZeroOrMore());
}

void DeclareStallFlags(FlagTable& table, PipelineFlags& flags) {
  table
      .AddSeconds(
          "--stall-limit", flags.stall_limit,
          "Seconds without a sign of life from a stage, or without the end of an overdue "
          "step, after which the stage is lost. Stalls are logged at once, and `serve` replaces "
          "a stage at once that would never go on")
      ->check(Between(1, 86'400));
  table
      .AddSeconds("--recovery-limit", flags.recovery_limit,
                  "Seconds for the replacement of a lost stage to answer at the same address. "
                  "Running requests wait and then go on. After that time, or with 0 at once, they "
                  "end with an error that names the stage")
      ->check(Between(0, 86'400));
  table
      .AddSeconds("--load-stall-limit", flags.load.load_stall_limit,
                  "Seconds without progress of a worker's load, for example if a file system does "
                  "not answer, after which the start ends with an error that names the file")
      ->check(Between(1, 86'400));
}

}  // namespace

Config DefaultLoadConfig() {
  Config config;
  config.set_memory_fraction(0.9F);
  config.set_max_logprobs(20);
  return config;
}

CLI::Option* DeclareDType(FlagTable& table, Config& config) {
  return table
      .AddChoice(
          "--dtype", Field(config, &Config::dtype, &Config::set_dtype), kDTypes,
          "Data type of the weights in memory, and of the KV cache unless --kv-dtype has another; "
          "auto: as stored in the checkpoint")
      ->type_name("TYPE");
}

CLI::Option* DeclareQuantize(FlagTable& table, Config& config) {
  return table
      .AddChoice("--quantize", Field(config, &Config::quantize, &Config::set_quantize), kQuantize,
                 "Quantize the weights of linear layers while they are read, which takes less "
                 "memory and is faster, and costs some accuracy. Embeddings, lm_head and routers "
                 "stay as stored. On GPUs not for models with experts")
      ->type_name("FORMAT");
}

CLI::Option* DeclareKvDType(FlagTable& table, Config& config) {
  return table
      .AddChoice("--kv-dtype", Field(config, &Config::kv_dtype, &Config::set_kv_dtype), kKvDTypes,
                 "Data type of the KV cache; auto: as --dtype; fp8: one byte per number, and a "
                 "scale for each token and head, which halves the memory of 16 bits and costs some "
                 "accuracy. Not for models with latent attention")
      ->type_name("TYPE");
}

CLI::Option* DeclareHiddenDType(FlagTable& table, Config& config) {
  return table
      .AddChoice(
          "--hidden-dtype", Field(config, &Config::hidden_dtype, &Config::set_hidden_dtype),
          kHiddenDTypes,
          "Data type in which hidden states travel from one stage to the next; bfloat16: half the "
          "bytes, for slow links. Tokens then depend on where the model is split into stages, so "
          "not with --batch-invariant")
      ->type_name("TYPE");
}

void DeclarePipelineFlags(FlagTable& table, PipelineFlags& flags) {
  DeclareModelFlags(table, flags);
  DeclareMemoryFlags(table, flags.load.config);
  DeclareSchedulerFlags(table, flags);
  DeclareStallFlags(table, flags);
  DeclareObservationFlags(table, flags.observation);
  table
      .Add("--trace-sample-ratio", flags.trace_sample_ratio,
           "Share of the requests without a traceparent that are traced")
      ->type_name("F")
      ->check(Between(0.0, 1.0))
      ->capture_default_str();
}

}  // namespace stagecoach
