// Multi-head latent attention, the attention of DeepSeek V2 and its successors.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

// Keys and values of all heads are products of one latent per token. The KV cache holds the latent
// in their place, and behind it a rotated part of the key, which all heads share. C: kv_rank.
//
// A head never needs its keys and values (the "absorbed" form): q . (K c) is (K^T q) . c. So each
// query is multiplied by K^T, [C, nope_dim], and attends to the latents. The sum of latents is then
// multiplied by the head's V, [value_dim, C]. Source: DeepSeek-AI, "DeepSeek-V2: A Strong,
// Economical, and Efficient Mixture-of-Experts Language Model", 2024.
struct LatentSpec {
  int32_t q_rank = 0;  // numbers of a row from which the queries are made; 0: the hidden state
  int32_t kv_rank = 0;
  // Numbers of a head: its query has a plain and a rotated part, in this order.
  int32_t nope_dim = 0, rope_dim = 0, value_dim = 0;
  bool interleaved = true;  // number 2 i is rotated with 2 i + 1; else i with i + rope_dim / 2

  // Prefixes as in TensorNames. H: hidden size, N: heads, Q: q_rank, D: nope_dim + rope_dim.
  std::string q_down;   // [Q, H]; like the next one, only with q_rank
  std::string q_norm;   // [Q]
  std::string q;        // [N D, Q], or [N D, H]
  std::string kv_down;  // [C + rope_dim, H]
  std::string kv_norm;  // [C]
  std::string kv_up;    // [N (nope_dim + value_dim), C]: K and V of each head

  int32_t query_dim() const { return nope_dim + rope_dim; }
  int32_t latent_dim() const { return kv_rank + rope_dim; }
};

// The norms of latents have this eps, whatever the other norms have.
inline constexpr float kLatentNormEps = 1e-6f;

// Limits of the kernels.
inline constexpr int32_t kMaxLatentRank = 512;
inline constexpr int32_t kLatentMultiple = 16;  // of kv_rank and value_dim

}  // namespace stagecoach
