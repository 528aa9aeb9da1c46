#include "worker/loader/find_requests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stagecoach::worker {
namespace {

std::vector<int64_t> WantedShape(const TensorRequest& request, const TensorFile& file) {
  if (request.is_stacked()) {
    const int64_t n = request.place.n_experts, n_turns = request.place.n_turns;
    if (request.is_vector) return {n, request.cols * n_turns};
    if (request.transposed) return {n, request.cols, request.rows * n_turns};
    return {n, request.rows * n_turns, request.cols};
  }
  if (!request.shape.empty()) return request.shape;
  if (request.is_vector) return {request.cols};
  if (IsTurned(request, file)) return {request.cols, request.rows};
  return {request.rows, request.cols};
}

// Returns an empty string if the shape is right.
std::string ShapeProblem(const TensorRequest& request, const std::vector<int64_t>& shape,
                         const std::vector<int64_t>& wanted) {
  if (shape == wanted) return "";
  const std::string differs = fmt::format("has shape [{}], but config.json needs [{}]",
                                          fmt::join(shape, ", "), fmt::join(wanted, ", "));
  const bool is_vocabulary = request.name.find("embed_tokens") != request.name.npos ||
                             request.name.find("token_embd") != request.name.npos ||
                             request.name.find(".wte.") != request.name.npos;
  if (!is_vocabulary || shape.size() != 2 || shape[1] != wanted[1]) return differs;
  if (shape[0] < wanted[0]) {
    return fmt::format(
        "{}: token ids {} to {} have no row in the embedding, so prompts with them cannot run; "
        "resize the embedding (transformers: resize_token_embeddings), or set vocab_size to {} and "
        "remove those ids from the tokenizer's files",
        differs, shape[0], wanted[0] - 1, shape[0]);
  }
  return fmt::format("{}: rows {} to {} are beyond vocab_size; set vocab_size to {}", differs,
                     wanted[0], shape[0] - 1, shape[0]);
}

void FindOne(const TensorRequest& request, const CheckpointFiles::Found& found,
             PlacedTensor* placed, FoundRequests* all) {
  if (found.name.empty()) {
    all->problems.Add(request.name, "missing");
    return;
  }
  all->names.insert(found.name);
  if (!found.file_error.ok()) {
    all->broken_files.insert(std::string(found.file_error.message()));
    return;
  }
  if (found.entry == nullptr) {
    all->problems.Add(found.name, "in the index, but not in the file that the index names");
    return;
  }
  const std::string shape =
      ShapeProblem(request, found.entry->shape, WantedShape(request, *found.file));
  if (!shape.empty()) all->problems.Add(found.name, shape);
  if (!found.entry->code) {
    all->problems.Add(found.name, fmt::format("has dtype {}; supported are F32, BF16 and F16, "
                                              "and others with scales of a supported format",
                                              found.entry->dtype));
    return;
  }
  if (request.is_stacked() && !PlainDType(*found.entry->code)) {
    all->problems.Add(found.name, "holds experts in a form that is not supported");
    return;
  }
  if (shape.empty()) *placed = Place(request, found.file, found.entry);
}

PlacedTensor PlaceQuantized(CheckpointFiles& files, const TensorRequest& request,
                            FoundRequests* all) {
  return {.rows = request.rows,
          .cols = request.cols,
          .quantized = OpenQuantizedMatrix(files, request, &all->problems)};
}

// Looks for a tensor with the rows of this request among others. Returns false if there is none.
bool FindFused(CheckpointFiles& files, const TensorRequest& request, PlacedTensor* placed,
               FoundRequests* all) {
  if (request.fused_name.empty()) return false;
  const CheckpointFiles::Found found = files.Find(request.fused_name);
  if (found.name.empty()) return false;
  TensorRequest whole = request;
  whole.name = request.fused_name;
  whole.shape = request.fused_shape;
  whole.first_row = request.fused_first_row;
  if (request.fused_place.n_experts > 0) {
    whole.place = request.fused_place;
    whole.transposed = true;
  }
  if (HasQuantized(files, whole)) {
    all->names.insert(found.name);
    all->names.merge(NamesOfMatrix(files, whole));
    *placed = PlaceQuantized(files, whole, all);
  } else {
    FindOne(whole, found, placed, all);
  }
  return true;
}

}  // namespace

FoundRequests FindRequests(CheckpointFiles& files, std::span<const TensorRequest> requests) {
  FoundRequests all;
  all.placed.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const TensorRequest& request = requests[i];
    all.names.merge(NamesOfMatrix(files, request));
    if (HasQuantized(files, request)) {
      all.placed[i] = PlaceQuantized(files, request, &all);
    } else {
      const CheckpointFiles::Found found = files.Find(request.name);
      if (found.name.empty() && FindFused(files, request, &all.placed[i], &all)) continue;
      FindOne(request, found, &all.placed[i], &all);
    }
  }
  return all;
}

std::string LoraProblem(const std::vector<std::string>& lora_names) {
  return fmt::format(
      "{} tensors of an unmerged LoRA adapter ({}, ...): merge the adapter (peft: "
      "merge_and_unload, then save_pretrained), or pass --merge-adapter DIR, the folder that holds "
      "its adapter_config.json",
      lora_names.size(), lora_names.front());
}

}  // namespace stagecoach::worker
