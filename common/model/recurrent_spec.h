// Layers that keep a state of fixed size per sequence in place of keys and values: gated delta nets
// (S. Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024), as in
// Qwen3-Next and Qwen3.5, and state-space layers (T. Dao, A. Gu, "Transformers are SSMs", 2024;
// "Mamba-2"), as in Nemotron-H.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

enum class RecurrentKind : uint8_t { kDeltaNet, kStateSpace };

// The heads of such a layer. Each key head serves n_value_heads / n_key_heads consecutive value
// heads. A projection makes q, k, v and a gate z of each row, and one number a per value head,
// which says how fast its state decays; a delta net also makes a number b. q, k and v pass through
// a causal convolution of conv_width positions per channel. Its channels are all q, then all k,
// then all v; in a state-space layer all v, all k, all q.
//
// In the terms of Mamba-2, v is x, k is B, q is C, a is dt, a key head is a group, key_dim is the
// size of the state.
struct RecurrentShape {
  int32_t n_key_heads = 0;
  int32_t n_value_heads = 0;
  int32_t key_dim = 0;    // of a head
  int32_t value_dim = 0;  // of a head
  int32_t conv_width = 0;
  // The order of a delta net's rows in the projection. False: all q, all k, all v, all z, all b,
  // all a. True: q, k, v and z of the first key head and its value heads, then of the second, and
  // so on; after them b and a of the first key head's value heads, and so on. A state-space layer
  // has all z, all v, all k, all q, all a.
  bool by_key_head = false;
  RecurrentKind kind = RecurrentKind::kDeltaNet;

  constexpr bool is_state_space() const { return kind == RecurrentKind::kStateSpace; }
  constexpr int32_t heads_per_key() const { return n_value_heads / n_key_heads; }
  constexpr int32_t keys_width() const { return n_key_heads * key_dim; }
  constexpr int32_t values_width() const { return n_value_heads * value_dim; }
  constexpr int32_t n_channels() const { return 2 * keys_width() + values_width(); }
  // Rows of the projection: q, k, v and z; b and a; all.
  constexpr int32_t qkvz_width() const { return n_channels() + values_width(); }
  constexpr int32_t ba_width() const { return (is_state_space() ? 1 : 2) * n_value_heads; }
  constexpr int32_t projected_width() const { return qkvz_width() + ba_width(); }

  // The first channel of a head.
  constexpr int32_t q_channel(int32_t key_head) const {
    return (is_state_space() ? values_width() + keys_width() : 0) + key_head * key_dim;
  }
  constexpr int32_t k_channel(int32_t key_head) const {
    return (is_state_space() ? values_width() : keys_width()) + key_head * key_dim;
  }
  constexpr int32_t v_channel(int32_t value_head) const {
    return (is_state_space() ? 0 : 2 * keys_width()) + value_head * value_dim;
  }

  // Where a row of the projection has q, k, v, z, b and a of a head.
  constexpr int32_t q_at(int32_t key_head) const {
    if (is_state_space()) return values_width() + q_channel(key_head);
    return by_key_head ? key_head * group_width() : key_head * key_dim;
  }
  constexpr int32_t k_at(int32_t key_head) const {
    if (is_state_space()) return values_width() + k_channel(key_head);
    return q_at(key_head) + (by_key_head ? key_dim : keys_width());
  }
  constexpr int32_t v_at(int32_t value_head) const {
    if (is_state_space()) return values_width() + v_channel(value_head);
    if (!by_key_head) return 2 * keys_width() + value_head * value_dim;
    return q_at(value_head / heads_per_key()) + 2 * key_dim +
           value_head % heads_per_key() * value_dim;
  }
  constexpr int32_t z_at(int32_t value_head) const {
    if (is_state_space()) return value_head * value_dim;
    return v_at(value_head) + (by_key_head ? heads_per_key() * value_dim : values_width());
  }
  // Not in a state-space layer.
  constexpr int32_t b_at(int32_t value_head) const {
    const int32_t n = heads_per_key();
    return qkvz_width() + (by_key_head ? value_head / n * 2 * n + value_head % n : value_head);
  }
  constexpr int32_t a_at(int32_t value_head) const {
    if (is_state_space()) return qkvz_width() + value_head;
    return b_at(value_head) + (by_key_head ? heads_per_key() : n_value_heads);
  }
  // Elements that one norm of the output covers: a value head, or all value heads of a key head.
  constexpr int32_t norm_group() const {
    return is_state_space() ? heads_per_key() * value_dim : value_dim;
  }
  // Elements of the norm's weight.
  constexpr int32_t norm_width() const { return is_state_space() ? values_width() : value_dim; }

  // Float32 values of one sequence's state: the last conv_width - 1 columns of the convolution's
  // input, [conv_width - 1, n_channels], then a matrix per value head, [n_value_heads, key_dim,
  // value_dim].
  constexpr int64_t conv_elements() const { return int64_t{conv_width - 1} * n_channels(); }
  constexpr int64_t state_elements() const {
    return conv_elements() + int64_t{n_value_heads} * key_dim * value_dim;
  }

 private:
  constexpr int32_t group_width() const { return 2 * key_dim + 2 * heads_per_key() * value_dim; }
};

// The largest key_dim and conv_width that GPU kernels support.
inline constexpr int32_t kMaxGpuRecurrentKeys = 256;
inline constexpr int32_t kMaxGpuConvWidth = 4;

// The recurrent layers of a model: the layers with LayerSpec::is_recurrent.
struct RecurrentSpec {
  RecurrentShape shape;
  // As in TensorNames. A delta net has either the first four or the next two, a state-space layer
  // has `all` of the projection in one. A_log, dt_bias and skip (D) are whole names, without
  // ".weight".
  std::string qkv, z, b, a;
  std::string qkvz, ba;
  std::string all;
  std::string conv, a_log, dt_bias, skip, norm, out;
  bool conv_bias = false;
};

// An MLP that every row of a layer with experts passes, beside its experts. With a row_gate, a
// sigmoid of a number per row scales what it adds.
struct SharedExpertSpec {
  int32_t intermediate_size = 0;         // 0: the model has none
  std::string row_gate, gate, up, down;  // as in TensorNames
};

}  // namespace stagecoach
