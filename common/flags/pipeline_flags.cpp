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
      .AddChoice("--load-format", Field(config, &Config::load_format, &Config::set_load_format),
                 kLoadFormats,
                 "Source of the weights. auto: the checkpoint; dummy: random numbers, and only "
                 "config.json is read")
      ->type_name("FORMAT");
  table
      .Add("--merge-adapter", Field(config, &Config::adapter_dir, &Config::set_adapter_dir),
           "Folder of a LoRA adapter. The workers merge it into the weights while they read them. "
           "The folder has adapter_config.json, and the adapter's weights unless the checkpoint "
           "has them")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory);
  table
      .Add("--layer-split", flags.load.layer_split,
           "Number of layers of each stage, such as 3,5 (default: the layers are balanced over the "
           "stages)")
      ->type_name("N,N...")
      ->check(MoreThanZero());
  table
      .AddChoice(
          "--measure-stages", flags.load.measure_stages, kMeasureStages,
          "Measure the speed and memory of each stage's device before the layers are balanced. A "
          "faster or larger device then gets more layers. auto: only if the devices differ")
      ->type_name("WHEN");
  table
      .Add("--chat-template", flags.chat_template,
           "Jinja file to use instead of the checkpoint's chat template")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  table
      .Add("--max-model-len", Field(config, &Config::max_model_len, &Config::set_max_model_len),
           "Maximum length of a sequence in tokens, prompt and completion together. 0: the limit "
           "of config.json, reduced to what the KV cache can hold")
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
           "Share of a GPU's memory that a worker may use for weights, scratch memory and KV "
           "cache. CPUs ignore it")
      ->type_name("F")
      ->check(Between(0.01, 1.0))
      ->capture_default_str();
  table
      .Add("--kv-store", Field(config, &Config::kv_store, &Config::set_kv_store),
           "Store through which servers of the same model share KV blocks. It is a Redis: "
           "redis://[USER:PASSWORD@]HOST[:PORT][/DB][?ttl=SECONDS&quota=SIZE], or rediss:// for "
           "TLS; or a folder: dir:PATH. If another server has computed the prefix of a prompt, "
           "this server computes only the rest (default: no store)")
      ->type_name("URL")
      ->envname("STAGECOACH_KV_STORE");
  table.AddSize(
      "--host-kv", Field(config, &Config::host_kv_bytes, &Config::set_host_kv_bytes),
      "Host memory of each stage for KV blocks that the device has no room for, such as 16GiB. A "
      "prompt whose blocks are there is not computed again. Blocks of --disk-kv and --kv-store "
      "also pass through this memory (default: 1GiB with one of these flags, else none)");
  table
      .Add("--disk-kv", Field(config, &Config::disk_kv, &Config::set_disk_kv),
           "Folder on a local disk for KV blocks that --host-kv has no room for, such as "
           "/mnt/kv:200GiB. The blocks survive a restart. SIZE is the limit for all workers of the "
           "machine together (default: no disk; without SIZE, half of the free space)")
      ->type_name("DIR[:SIZE]");
  table
      .Add("--max-sequences", Field(config, &Config::max_sequences, &Config::set_max_sequences),
           "Maximum number of sequences that run at the same time (default: 256; on several GPUs, "
           "the larger of 1024 and 256 per stage)")
      ->type_name("N")
      ->check(MoreThanZero());
  table
      .Add(
          "--max-batched-tokens",
          Field(config, &Config::max_batched_tokens, &Config::set_max_batched_tokens),
          "Maximum number of tokens in one step, up to 262144 (default: 512; on GPUs 8192). A "
          "larger number makes prefill faster, but other requests wait longer for their next token")
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
           "Maximum number of waiting requests. The server refuses more with RESOURCE_EXHAUSTED")
      ->type_name("N")
      ->check(ZeroOrMore())
      ->capture_default_str();
  table
      .Add("--max-waiting-tokens", scheduler.max_waiting_tokens,
           "Maximum number of prompt tokens of all waiting requests together. Each choice of a "
           "request counts. The server refuses more, unless no other request waits")
      ->type_name("N")
      ->check(ZeroOrMore())
      ->capture_default_str();
  table.AddSize("--request-memory", flags.request_memory_bytes,
                "Memory of the router for all requests together: bodies and messages, prompts that "
                "are being tokenized, answers that wait for their client. Requests up to 64 KiB do "
                "not count. The router refuses what does not fit. Tokenizing a prompt of N bytes "
                "takes about 48 N bytes [256MiB]");
  table
      .Add("--max-logprobs", Field(config, &Config::max_logprobs, &Config::set_max_logprobs),
           "Maximum number of most likely tokens per position that a request may ask for")
      ->type_name("N")
      ->check(ZeroOrMore())
      ->capture_default_str();
  table.AddSwitch("--plan-ahead", scheduler.plan_ahead,
                  "Plan the next step before the tokens of the last step are known. This does not "
                  "change any token [on]");
  table.AddSwitch("--prefix-cache", scheduler.prefix_cache,
                  "Keep computed KV blocks until their memory is needed. If a prompt begins like "
                  "an earlier one, only the rest of it is computed [on]");
  table
      .Add("--replicas", flags.replicas,
           "Number of replicas: pipelines with the same model behind one router, each with all "
           "stages. A request goes to the replica that has computed most of its prompt and has "
           "least work")
      ->type_name("N")
      ->check(Between(1, 64))
      ->capture_default_str();
  table
      .Add("--microbatches", flags.microbatches,
           "Number of groups into which the running sequences are divided for decode, so that all "
           "stages work at the same time. If there are several groups, one more is used while "
           "prompts fill the steps (default: one per stage; 1 if the stages share their cores)")
      ->type_name("N")
      ->check(ZeroOrMore());
  table.Add("--preempt-every", scheduler.preempt_every, "")->group("")->check(ZeroOrMore());
}

void DeclareStallFlags(FlagTable& table, PipelineFlags& flags) {
  table
      .AddSeconds(
          "--stall-limit", flags.stall_limit,
          "Seconds after which a stalled stage counts as lost. A stage is stalled if it says "
          "nothing, or does not finish a step that is overdue. The router logs each stall at once. "
          "`serve` does not wait for this limit if the stage could never continue")
      ->check(Between(1, 86'400));
  table
      .AddSeconds("--recovery-limit", flags.recovery_limit,
                  "Seconds for which the router waits until a replacement for a lost stage answers "
                  "at the same address. Running requests wait, and then continue. After this time "
                  "they end with an error that names the stage. 0: they end at once")
      ->check(Between(0, 86'400));
  table
      .AddSeconds("--load-stall-limit", flags.load.load_stall_limit,
                  "Seconds without progress after which a worker's load fails, for example if a "
                  "file system does not answer. The error names the file")
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
      .AddChoice("--dtype", Field(config, &Config::dtype, &Config::set_dtype), kDTypes,
                 "Data type of the weights in memory, and of the KV cache unless --kv-dtype is "
                 "given. auto: the type in the checkpoint")
      ->type_name("TYPE");
}

CLI::Option* DeclareQuantize(FlagTable& table, Config& config) {
  return table
      .AddChoice("--quantize", Field(config, &Config::quantize, &Config::set_quantize), kQuantize,
                 "Quantize the weights of linear layers and experts while they are read. This "
                 "takes less memory and is faster, but costs some accuracy. Embeddings, lm_head "
                 "and routers are not quantized")
      ->type_name("FORMAT");
}

CLI::Option* DeclareKvDType(FlagTable& table, Config& config) {
  return table
      .AddChoice("--kv-dtype", Field(config, &Config::kv_dtype, &Config::set_kv_dtype), kKvDTypes,
                 "Data type of the KV cache. auto: as --dtype; fp8: one byte per number and a "
                 "scale for each token and head. fp8 takes about half of the memory of 16 bits and "
                 "costs some accuracy. Models with latent attention do not support it")
      ->type_name("TYPE");
}

CLI::Option* DeclareHiddenDType(FlagTable& table, Config& config) {
  return table
      .AddChoice("--hidden-dtype", Field(config, &Config::hidden_dtype, &Config::set_hidden_dtype),
                 kHiddenDTypes,
                 "Data type of the hidden states that one stage sends to the next. bfloat16 takes "
                 "half of the bytes, for slow links. Tokens then depend on how the layers are "
                 "split into stages, so it excludes --batch-invariant")
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
           "Share of requests that are traced, among those without a traceparent")
      ->type_name("F")
      ->check(Between(0.0, 1.0))
      ->capture_default_str();
}

}  // namespace stagecoach
