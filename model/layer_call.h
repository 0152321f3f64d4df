#pragma once
// The inputs of one call of a layer: the stream, an arena for scratch, an arena for activations saved for the
// backward pass, and the tokens of the micro-batch. A layer remembers the tensors it saved; the caller owns
// their memory and rewinds `saved` when they are no longer needed.

#include <optional>
#include <span>

#include "kernels/answer_loss.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

class ExpertExchange;
class KvCache;
struct TextRows;

// The rows of a micro-batch's inputs.
struct RowCounts {
  int64_t tokens = 0;
  int64_t patches = 0, frames = 0, windows = 0;  // counts of the micro-batch's images
};

// The row indices by which the connector of a model that reads images moves rows (image_rows.h).
struct ConnectorMoves {
  Tensor squares;               // pixel shuffle: (P), the patches in the order of their squares
  Tensor patches, latents;      // perceiver: (P), (F L), their rows in [patches; latents] of each frame
  Tensor latent_of_row;         // (F L): 0 to L - 1, for each frame
  Tensor query_ends, key_ends;  // (F + 1): boundaries of frames among latents, and among both
  // Merger with windows: in the order of windows the patches (P), the rows (R), and the positions of the
  // patches (2, P); and where windows begin among the patches (windows + 1).
  Tensor windowed_patches, windowed_rows, windowed_positions, windows;
};

// The images of a micro-batch, in the order of their tokens: P patches of F frames become R rows of text.
struct ImageInputs {
  Tensor patches;    // (P, W) f32, or in the activations' dtype
  Tensor positions;  // (P) i32; for a rotary tower (2, P): rows and columns
  Tensor frames;     // (F + 1) i32: where frames begin among the patches
  Tensor rows;       // (R) i32: the tokens whose embeddings they replace
  ConnectorMoves moves;
};

// Identifies the random numbers of one micro-batch; the numbers of every layer and element follow from it.
struct RandomDraw {
  uint64_t seed, step;
};

// The counts of the routers of a mixture of experts, and their auxiliary losses (kernels/route.h).
struct Routing {
  // (blocks, E) i32, to which each block adds how often its experts were chosen; empty: not counted.
  Tensor step_counts{};
  // (E) i32: how often each expert was chosen in all blocks of the micro-batch, once its forward pass is
  // done; the embedding begins with zeros. Empty: no loss depends on it.
  Tensor counts{};
  Tensor factors{};  // (2) f32, of the losses; empty: none
  Tensor losses{};   // (N, 2) f32, to which each block adds those of its rows; empty: not added
  // (blocks, N, k) i32, to which each block copies the experts of its tokens; empty: not copied.
  Tensor choices{};
  bool in_turn = false;  // tokens go to experts in turn (RouteRule)
};

struct LayerCall {
  Stream& stream;
  Arena& scratch;
  Arena& saved;
  Tensor tokens;          // (N) i32
  Tensor positions;       // (N) i32; with M-RoPE (3, N): time, row and column
  Tensor boundaries;      // (documents + 1) i32
  Tensor targets;         // (N) i32
  Tensor target_weights;  // (N) f32, the factor of each token's loss
  Tensor losses;          // (N) f32, written by the last layer
  // A loss of whole answers, which determines the weights of gradients; target_weights are then 1.
  std::optional<AnswerInputs> answers{};
  ImageInputs images{};       // set only for models that read images
  DType dtype = DType::bf16;  // dtype of activations
  bool tf32 = false;          // TF32 in matrix products (kernels/gemm.h)
  int64_t head_chunk = 0;     // tokens whose logits exist at once (kernels/head.h)
  // Norms and the activations of MLPs are not saved: backward passes compute them again.
  bool recomputes_ops = false;
  // Rows of a block that norms and products compute at once; 0: all. Their values last for one tile, so that
  // the backward pass computes them again (tiles.h).
  int64_t tile = 0;
  int64_t first_row = 0;  // where the rows of a tile begin in those of the micro-batch
  // Where attention saves its output and lse, so that a repeated pass need not compute them; null: in
  // `saved`.
  Arena* kept = nullptr;
  bool repeats = false;                 // a forward pass is repeated for the backward pass alone
  bool wants_output = true;             // false in a repeated pass whose output is not read
  bool input_gradient = true;           // a backward pass computes the gradient of the layer's input
  std::optional<RandomDraw> dropout{};  // empty: no dropout
  Routing routing{};
  // Experts are divided among ranks (expert_exchange.h); null: this rank has all of them.
  ExpertExchange* expert_exchange = nullptr;
  // The next three are for generation: the tokens continue texts in the cache.
  const KvCache* cache = nullptr;
  std::span<const TextRows> texts{};
  Tensor text_boundaries{};  // (texts, 4) i32: 0, rows, 0, cached tokens + rows; used only on a GPU
  // The last layer writes one of these in place of losses.
  Tensor logits{};  // (N, V) f32
  Tensor states{};  // (N, hidden): output of the last norm
};

}  // namespace flatshard
