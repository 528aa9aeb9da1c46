#include "worker/loader/pickle_globals.h"

#include <algorithm>
#include <array>

namespace stagecoach::worker {
namespace {

constexpr std::array kElements = {"Float", "Half", "BFloat16", "Double", "Long",   "Int",
                                  "Short", "Char", "Byte",     "Bool",   "Untyped"};
constexpr std::array kDTypes = {"float32", "float16", "bfloat16", "float64", "int64",
                                "int32",   "int16",   "int8",     "uint8",   "bool"};

bool Contains(const auto& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string_view ElementOf(std::string_view storage) {
  constexpr std::string_view kStorage = "Storage";
  if (!storage.ends_with(kStorage)) return "";
  storage.remove_suffix(kStorage.size());
  return Contains(kElements, storage) ? storage : "";
}

bool IsTorchDType(std::string_view name) { return Contains(kDTypes, name); }

bool IsAllowedInPickle(std::string_view module, std::string_view name) {
  if (module == "collections") return name == "OrderedDict";
  if (module == "torch") {
    return name == "Size" || !ElementOf(name).empty() || IsTorchDType(name);
  }
  if (module == "torch.storage") return name == "UntypedStorage";
  return module == "torch._utils" &&
         (name == "_rebuild_tensor" || name == "_rebuild_tensor_v2" ||
          name == "_rebuild_tensor_v3" || name == "_rebuild_parameter" ||
          name == "_rebuild_parameter_with_state");
}

}  // namespace stagecoach::worker
