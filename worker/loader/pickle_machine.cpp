#include "worker/loader/pickle_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "common/status.h"
#include "worker/loader/pickle_globals.h"

namespace stagecoach::worker {
namespace {

enum class Kind : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kTuple,
  kList,
  kDict,
  kGlobal,
  kStorage,
  kTensor
};

using Index = uint32_t;  // of a value

// Values refer to each other by index, so nothing here recurses as deeply as a pickle nests.
struct Value {
  Kind kind = Kind::kNone;
  int64_t number = 0;
  std::string_view text;     // kText; kGlobal: the name within its module; kStorage: the key
  std::string_view element;  // kStorage: "Float"
  std::vector<Index> items;  // kTuple; kDict: key, value, key, value...
  uint32_t tensor = 0;       // kTensor: index into tensors_
};

// More values than any checkpoint has (about 40 per tensor). Stops inputs that turn one byte into
// many bytes of memory without end.
constexpr size_t kMaxValues = 1 << 21;

std::string Excerpt(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 80)) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown;
}

class Machine {
 public:
  Machine(const std::string& name, std::span<const std::byte> bytes) : name_(name), bytes_(bytes) {}

  absl::StatusOr<PickledDict> Run() {
    uint8_t opcode = 0;
    while (!stopped_) {
      if (!Read(&opcode)) return CutShort();
      SC_RETURN_IF_ERROR(Execute(opcode));
      if (values_.size() > kMaxValues) return Error("holds more values than any checkpoint");
    }
    return Result();
  }

 private:
  absl::Status Error(std::string_view text) const {
    return absl::InvalidArgumentError(fmt::format("{}: {}", name_, text));
  }
  absl::Status CutShort() const { return Error("cut short, or not a pickle"); }
  absl::Status Underflow() const {
    return Error("not a pickle of torch.save: its stack runs empty");
  }

  template <typename T>
  bool Read(T* out) {
    if (bytes_.size() - at_ < sizeof(T)) return false;
    std::memcpy(out, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }
  bool ReadText(uint64_t n, std::string_view* out) {
    if (bytes_.size() - at_ < n) return false;
    *out = {reinterpret_cast<const char*>(bytes_.data() + at_), static_cast<size_t>(n)};
    at_ += n;
    return true;
  }
  bool ReadLine(std::string_view* out) {
    const auto rest = bytes_.subspan(at_);
    const auto end = std::find(rest.begin(), rest.end(), std::byte{'\n'});
    if (end == rest.end()) return false;
    const bool read = ReadText(static_cast<uint64_t>(end - rest.begin()), out);
    ++at_;
    return read;
  }

  void Push(Value value) {
    stack_.push_back(static_cast<Index>(values_.size()));
    values_.push_back(std::move(value));
  }
  bool PushInt(bool read, int64_t number) {
    if (read) Push({.kind = Kind::kInt, .number = number});
    return read;
  }
  // Height of the stack at the last mark.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  bool Has(size_t n) const { return stack_.size() - floor() >= n; }
  Index Pop() {
    const Index top = stack_.back();
    stack_.pop_back();
    return top;
  }
  // Takes the values above the last mark, and the mark.
  bool PopMark(std::vector<Index>* items) {
    if (marks_.empty()) return false;
    items->assign(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return true;
  }

  absl::Status Execute(uint8_t opcode);
  absl::Status Tuple(size_t n);
  absl::Status Text(uint64_t n);
  absl::Status Integer(uint8_t opcode);
  absl::Status Put(uint32_t slot);
  absl::Status Get(uint32_t slot);
  absl::Status Global();
  absl::Status SetItems(std::vector<Index> items);
  absl::Status Append(bool many);
  absl::Status Build();
  absl::Status Storage();
  absl::Status Reduce();
  absl::Status Rebuild(const std::vector<Index>& args, std::string_view function);
  bool Ints(Index tuple, std::vector<int64_t>* out) const;
  absl::StatusOr<PickledDict> Result() const;

  const std::string& name_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool stopped_ = false;
  std::vector<Value> values_;
  std::vector<Index> stack_;
  std::vector<size_t> marks_;  // stack heights; in ascending order
  std::unordered_map<uint32_t, Index> memo_;
  std::vector<PickledTensor> tensors_;
  size_t n_items_total_ = 0;  // over all dictionaries
};

absl::Status Machine::Execute(uint8_t opcode) {
  uint8_t byte = 0;
  uint32_t word = 0;
  std::vector<Index> items;
  switch (opcode) {
    case 0x80:  // PROTO
      if (!Read(&byte)) return CutShort();
      if (byte == 2) return absl::OkStatus();
      return absl::UnimplementedError(fmt::format(
          "{}: pickle protocol {} is not supported, only 2, which torch.save uses unless told "
          "otherwise; save it again",
          name_, byte));
    case '(':  // MARK
      marks_.push_back(stack_.size());
      if (marks_.size() > kMaxValues) return Error("holds more marks than any checkpoint");
      return absl::OkStatus();
    case ')':  // EMPTY_TUPLE
      return Tuple(0);
    case 0x85:  // TUPLE1 to TUPLE3
    case 0x86:
    case 0x87:
      return Tuple(opcode - 0x84u);
    case 't':  // TUPLE
      if (!PopMark(&items)) return Underflow();
      Push({.kind = Kind::kTuple, .items = std::move(items)});
      return absl::OkStatus();
    case ']':  // EMPTY_LIST
      Push({.kind = Kind::kList});
      return absl::OkStatus();
    case 'a':  // APPEND
    case 'e':  // APPENDS
      return Append(opcode == 'e');
    case '}':  // EMPTY_DICT
      Push({.kind = Kind::kDict});
      return absl::OkStatus();
    case 'N':  // NONE
      Push({.kind = Kind::kNone});
      return absl::OkStatus();
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      Push({.kind = Kind::kBool, .number = opcode == 0x88});
      return absl::OkStatus();
    case 'G': {  // BINFLOAT: appears only outside tensors, so the value is ignored
      uint64_t bits = 0;
      if (!Read(&bits)) return CutShort();
      Push({.kind = Kind::kFloat});
      return absl::OkStatus();
    }
    case 'J':  // BININT, BININT1, BININT2, LONG1
    case 'K':
    case 'M':
    case 0x8a:
      return Integer(opcode);
    case 'X':  // BINUNICODE
    case 'T':  // BINSTRING
      return Read(&word) ? Text(word) : CutShort();
    case 'U':  // SHORT_BINSTRING
      return Read(&byte) ? Text(byte) : CutShort();
    case 'q':  // BINPUT
      return Read(&byte) ? Put(byte) : CutShort();
    case 'r':  // LONG_BINPUT
      return Read(&word) ? Put(word) : CutShort();
    case 'h':  // BINGET
      return Read(&byte) ? Get(byte) : CutShort();
    case 'j':  // LONG_BINGET
      return Read(&word) ? Get(word) : CutShort();
    case 'c':
      return Global();
    case 's':  // SETITEM
      if (!Has(2)) return Underflow();
      items = {stack_[stack_.size() - 2], stack_[stack_.size() - 1]};
      stack_.resize(stack_.size() - 2);
      return SetItems(std::move(items));
    case 'u':  // SETITEMS
      return PopMark(&items) ? SetItems(std::move(items)) : Underflow();
    case 'b':
      return Build();
    case 'Q':  // BINPERSID
      return Storage();
    case 'R':
      return Reduce();
    case '.':  // STOP
      stopped_ = true;
      return absl::OkStatus();
    default:
      return absl::UnimplementedError(
          fmt::format("{}: opcode 0x{:02x} does not occur in checkpoints; save it again as "
                      "safetensors (transformers: save_pretrained)",
                      name_, opcode));
  }
}

absl::Status Machine::Tuple(size_t n) {
  if (!Has(n)) return Underflow();
  std::vector<Index> items(stack_.end() - static_cast<std::ptrdiff_t>(n), stack_.end());
  stack_.resize(stack_.size() - n);
  Push({.kind = Kind::kTuple, .items = std::move(items)});
  return absl::OkStatus();
}

absl::Status Machine::Text(uint64_t n) {
  std::string_view text;
  if (!ReadText(n, &text)) return CutShort();
  Push({.kind = Kind::kText, .text = text});
  return absl::OkStatus();
}

absl::Status Machine::Integer(uint8_t opcode) {
  bool read = false;
  if (opcode == 'J') {
    int32_t number = 0;
    read = Read(&number);
    return PushInt(read, number) ? absl::OkStatus() : CutShort();
  }
  if (opcode == 'M') {
    uint16_t number = 0;
    read = Read(&number);
    return PushInt(read, number) ? absl::OkStatus() : CutShort();
  }
  uint8_t first = 0;
  read = Read(&first);
  if (opcode == 'K') return PushInt(read, first) ? absl::OkStatus() : CutShort();
  // LONG1: `first` bytes of two's complement, lowest byte first.
  std::string_view digits;
  if (!read || !ReadText(first, &digits)) return CutShort();
  if (digits.size() > sizeof(int64_t)) return Error("holds an integer of more than 64 bits");
  const bool negative = !digits.empty() && (static_cast<uint8_t>(digits.back()) & 0x80) != 0;
  uint64_t bits = negative ? ~uint64_t{0} : 0;
  std::memcpy(&bits, digits.data(), digits.size());
  PushInt(true, static_cast<int64_t>(bits));
  return absl::OkStatus();
}

absl::Status Machine::Put(uint32_t slot) {
  if (!Has(1)) return Underflow();
  memo_[slot] = stack_.back();
  return memo_.size() <= kMaxValues ? absl::OkStatus()
                                    : Error("memoizes more values than any checkpoint");
}

absl::Status Machine::Get(uint32_t slot) {
  const auto found = memo_.find(slot);
  if (found == memo_.end()) {
    return Error("not a pickle of torch.save: it reads a memo entry that it never wrote");
  }
  stack_.push_back(found->second);
  return stack_.size() <= kMaxValues ? absl::OkStatus()
                                     : Error("holds more values than any checkpoint");
}

absl::Status Machine::Global() {
  std::string_view module, name;
  if (!ReadLine(&module) || !ReadLine(&name)) return CutShort();
  if (!IsAllowedInPickle(module, name)) {
    return absl::PermissionDeniedError(fmt::format(
        "{}: {}.{} is not a tensor, and code from a checkpoint is never run; if you trust the "
        "file, load it with transformers and save_pretrained(DIR), which writes safetensors",
        name_, Excerpt(module), Excerpt(name)));
  }
  Push({.kind = Kind::kGlobal, .text = name});
  return absl::OkStatus();
}

absl::Status Machine::SetItems(std::vector<Index> items) {
  if (!Has(1)) return Underflow();
  Value& dict = values_[stack_.back()];
  if (dict.kind != Kind::kDict || items.size() % 2 != 0) {
    return Error("not a pickle of torch.save: it sets items of a value that is not a dictionary");
  }
  n_items_total_ += items.size();
  if (n_items_total_ > kMaxValues) return Error("holds more items than any checkpoint");
  dict.items.insert(dict.items.end(), items.begin(), items.end());
  return absl::OkStatus();
}

absl::Status Machine::Append(bool many) {
  std::vector<Index> items;
  if (many && !PopMark(&items)) return Underflow();
  if (!Has(many ? 1 : 2)) return Underflow();
  if (!many) Pop();
  // Lists appear only outside tensors, so their content is ignored.
  return values_[stack_.back()].kind == Kind::kList
             ? absl::OkStatus()
             : Error("not a pickle of torch.save: it appends to a value that is not a list");
}

// The state belongs to a dictionary ("_metadata") or a parameter. Neither changes a weight.
absl::Status Machine::Build() {
  if (!Has(2)) return Underflow();
  Pop();
  const Kind kind = values_[stack_.back()].kind;
  return kind == Kind::kDict || kind == Kind::kTensor
             ? absl::OkStatus()
             : Error(
                   "not a pickle of torch.save: it builds a value that is neither a dictionary nor "
                   "a tensor");
}

// The id is ("storage", torch.FloatStorage, "0", "cpu", n_elements).
absl::Status Machine::Storage() {
  if (!Has(1)) return Underflow();
  const Value& id = values_[Pop()];
  const auto item = [&](size_t i, Kind kind) -> const Value* {
    if (id.kind != Kind::kTuple || id.items.size() != 5) return nullptr;
    const Value& value = values_[id.items[i]];
    return value.kind == kind ? &value : nullptr;
  };
  const Value* tag = item(0, Kind::kText);
  const Value* type = item(1, Kind::kGlobal);
  const Value* key = item(2, Kind::kText);
  if (tag == nullptr || tag->text != "storage" || type == nullptr || key == nullptr ||
      ElementOf(type->text).empty()) {
    return Error("refers to external data that is not a tensor's storage");
  }
  Push({.kind = Kind::kStorage, .text = key->text, .element = ElementOf(type->text)});
  return absl::OkStatus();
}

absl::Status Machine::Reduce() {
  if (!Has(2)) return Underflow();
  const Index args_at = Pop();
  const Index function_at = Pop();
  const Value& function = values_[function_at];
  if (function.kind != Kind::kGlobal || values_[args_at].kind != Kind::kTuple) {
    return Error("not a pickle of torch.save: it calls a value that is not a function");
  }
  const std::string_view name = function.text;
  constexpr size_t kMaxArguments = 16;
  if (values_[args_at].items.size() > kMaxArguments) {
    return Error(fmt::format("calls {} with too many arguments", name));
  }
  // A copy, because values_ may reallocate while new values are pushed.
  const std::vector<Index> args = values_[args_at].items;
  if (name == "OrderedDict" && args.empty()) {
    Push({.kind = Kind::kDict});
    return absl::OkStatus();
  }
  if (name == "Size" && args.size() == 1 && values_[args[0]].kind == Kind::kTuple) {
    stack_.push_back(args[0]);
    return absl::OkStatus();
  }
  if (name.starts_with("_rebuild_parameter") && !args.empty() &&
      values_[args[0]].kind == Kind::kTensor) {
    stack_.push_back(args[0]);
    return absl::OkStatus();
  }
  if (name.starts_with("_rebuild_tensor")) return Rebuild(args, name);
  return Error(fmt::format("calls {} in a way that torch.save does not", name));
}

bool Machine::Ints(Index tuple, std::vector<int64_t>* out) const {
  constexpr size_t kMaxDims = 16;
  const Value& value = values_[tuple];
  if (value.kind != Kind::kTuple || value.items.size() > kMaxDims) return false;
  for (const Index item : value.items) {
    if (values_[item].kind != Kind::kInt || values_[item].number < 0) return false;
    out->push_back(values_[item].number);
  }
  return true;
}

// Arguments: (storage, offset, shape, strides, requires_grad, hooks...). v3 adds a dtype at the
// end.
absl::Status Machine::Rebuild(const std::vector<Index>& args, std::string_view function) {
  PickledTensor tensor;
  const bool has_dtype = function == "_rebuild_tensor_v3";
  const bool sound =
      args.size() >= (has_dtype ? 7u : 4u) && values_[args[0]].kind == Kind::kStorage &&
      values_[args[1]].kind == Kind::kInt && values_[args[1]].number >= 0 &&
      Ints(args[2], &tensor.shape) && Ints(args[3], &tensor.strides) &&
      tensor.shape.size() == tensor.strides.size() &&
      (!has_dtype ||
       (values_[args[6]].kind == Kind::kGlobal && IsTorchDType(values_[args[6]].text)));
  if (!sound) return Error(fmt::format("calls {} with a value that is not a tensor", function));
  tensor.element = has_dtype ? values_[args[6]].text : values_[args[0]].element;
  tensor.key = values_[args[0]].text;
  tensor.offset = values_[args[1]].number;
  Push({.kind = Kind::kTensor, .tensor = static_cast<uint32_t>(tensors_.size())});
  tensors_.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::StatusOr<PickledDict> Machine::Result() const {
  if (!marks_.empty() || stack_.size() != 1 || values_[stack_[0]].kind != Kind::kDict) {
    return Error(
        "does not hold a dictionary of tensors (a state_dict); save model.state_dict(), or use "
        "save_pretrained");
  }
  const std::vector<Index>& items = values_[stack_[0]].items;
  PickledDict dict;
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const Value& key = values_[items[i]];
    const Value& value = values_[items[i + 1]];
    if (key.kind != Kind::kText) return Error("has a key that is not a string");
    if (value.kind == Kind::kTensor) {
      dict.tensors.emplace_back(key.text, tensors_[value.tensor]);
    } else {
      dict.others.push_back(key.text);
    }
  }
  return dict;
}

}  // namespace

absl::StatusOr<PickledDict> ReadPickledTensors(const std::string& name,
                                               std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxPickleBytes) {
    return absl::InvalidArgumentError(
        fmt::format("{}: {} bytes, more than any checkpoint needs", name, bytes.size()));
  }
  return Machine(name, bytes).Run();
}

}  // namespace stagecoach::worker
