// Experts that are divided among ranks: steps 3 to 5 of experts.h, forward and backward, by the ranks that
// own the experts (expert_exchange.h). Nothing is saved for the backward pass: it exchanges the rows again,
// and computes gate and up again.

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/expert_bias.h"
#include "kernels/expert_rows.h"
#include "kernels/gather_rows.h"
#include "kernels/grouped_product.h"
#include "model/expert_exchange.h"
#include "model/experts.h"
#include "runtime/memory.h"

namespace flatshard {

// A round of exchanges with one peer, which may be this rank itself. This rank's tokens have rows for the
// peer's experts, which the peer computes, and the peer's tokens have rows for the experts here.
class ExpertMlp::Round {
 public:
  Round(const ExpertMlp& mlp, LayerCall& c, int number)
      : c_(c), ranks_(*c.expert_exchange), peer_(ranks_.place() ^ number) {
    const int64_t N = mlp.chosen_.shape[0], k = mlp.per_token_, experts = mlp.count_ / ranks_.size(),
                  expected = std::max(expert_row_count(N * k / ranks_.size(), experts), kSegmentRows);
    most_ = expert_row_count(N * std::min(k, experts), experts);
    own_rows_ = ranks_.rows(c.stream, ranks_.place(), peer_, most_, std::min(expected, most_));
    rows_ = ranks_.rows(c.stream, peer_, ranks_.place(), most_, std::min(expected, most_));
    const auto numbers = [&](int64_t n) { return c.scratch.alloc(DType::i32, {n}); };
    const Tensor own_offsets = numbers(experts + 1);
    tokens_ = numbers(most_).slice(0, own_rows_);
    places_ = numbers(most_).slice(0, own_rows_);
    choices_ = numbers(most_).slice(0, own_rows_);
    expert_part(c.stream, {.offsets = own_offsets,
                           .places = places_,
                           .rows = tokens_,
                           .choices = choices_,
                           .all_offsets = mlp.offsets_,
                           .all_rows = mlp.rows_,
                           .all_places = mlp.places_,
                           .first = peer_ * experts});
    offsets_ = numbers(experts + 1);
    expert_part(c.stream, {.offsets = offsets_,
                           .places = {},
                           .rows = {},
                           .choices = {},
                           .all_offsets = ranks_.offsets(peer_),
                           .all_rows = {},
                           .all_places = {},
                           .first = ranks_.place() * experts});
    used_ = arrived(tokens_);
  }

  // For each of this rank's rows in the round: its index among all rows, and among the choices of all tokens.
  const Tensor& places() const { return places_; }
  const Tensor& choices() const { return choices_; }
  int peer() const { return peer_; }

  // The rows of a tensor of tokens, or of choices, for the peer.
  Tensor own(const Tensor& of_tokens, const Tensor& index) const {
    const Tensor rows = c_.scratch.alloc(of_tokens.dtype, {most_, of_tokens.shape[1]}).slice(0, own_rows_);
    gather_rows(c_.stream, {.y = rows, .x = of_tokens, .index = index});
    return rows;
  }
  Tensor own(const Tensor& of_tokens) const { return own(of_tokens, tokens_); }
  // Sends these rows, and returns the peer's.
  Tensor arrived(const Tensor& own) const {
    if (peer_ == ranks_.place()) return own;
    const Shape shape = own.shape.rank() == 1 ? Shape{most_} : Shape{most_, own.shape[1]};
    const Tensor rows = c_.scratch.alloc(own.dtype, shape).slice(0, rows_);
    ranks_.exchange(c_.stream, rows, own, peer_);
    return rows;
  }
  // Sends what was computed for the peer's rows, and returns what the peer has computed for this rank's, in
  // the memory of `own`.
  Tensor returned(const Tensor& own, const Tensor& computed) const {
    if (peer_ == ranks_.place()) return computed;
    ranks_.exchange(c_.stream, own, computed, peer_);
    return own;
  }
  // Adds the biases of the experts here to their rows.
  void add_bias(const Tensor& x, const Tensor& bias) const {
    add_expert_bias(c_.stream, {.x = x, .bias = bias, .offsets = offsets_, .rows = used_});
  }
  // The gradients of these biases: sums of rows.
  Tensor bias_gradient(const Tensor& dx) const {
    const Tensor sums = c_.scratch.alloc(DType::f32, {offsets_.size() - 1, dx.shape[1]});
    expert_bias_backward(c_.stream, {.dbias = sums, .dx = dx, .offsets = offsets_, .rows = used_});
    return sums;
  }
  // Sends a tensor as a whole, and returns the peer's.
  Tensor exchanged(const Tensor& t) const {
    if (peer_ == ranks_.place()) return t;
    const Tensor received = c_.scratch.alloc(t.dtype, t.shape);
    ranks_.exchange(c_.stream, received, t, peer_);
    return received;
  }
  // A tensor for the rows that are computed here.
  Tensor alloc(int64_t columns) const { return alloc(columns, c_.dtype); }
  Tensor alloc(int64_t columns, DType dtype) const {
    return c_.scratch.alloc(dtype, {most_, columns}).slice(0, rows_);
  }
  // c = a w, and dw = dy^T x, for each of the experts here.
  GroupedProduct product(const Tensor& c, const Tensor& a) const {
    return {.c = c, .a = a, .offsets = offsets_, .used = used_};
  }
  GroupedProduct gradient(const Tensor& dy, const Tensor& x) const {
    return {.a = dy, .b = x, .offsets = offsets_, .used = used_};
  }

 private:
  LayerCall& c_;
  ExpertExchange& ranks_;
  int peer_;
  int64_t most_, own_rows_, rows_;  // the most rows, those of this rank, and those of the peer
  Tensor tokens_, places_, choices_;
  Tensor offsets_, used_;  // the segments of the peer's rows, and their tokens
};

// The biases of the experts here, among those of all.
Tensor ExpertMlp::own_biases(const LayerCall& c, const Tensor& of_all) const {
  const int64_t experts = count_ / c.expert_exchange->size(), first = c.expert_exchange->place() * experts;
  return of_all.slice(first, first + experts);
}

// Steps 3 and 4 for a peer's rows, whose micro-batch has `tokens` tokens.
void ExpertMlp::activate(LayerCall& c, const ParamView& p, const Round& round, const Tensor& a,
                         const Tensor& up, const Tensor& rows, int64_t tokens) const {
  const ProductEnd activation = activation_.forward(a, up);
  GroupedProduct product = round.product(up, rows);
  product.transpose_b = true;
  product.most_rows = tokens;
  if (!gate_up_bias_) product.end = activation;
  gate_up_.multiply(c, p, product);
  if (!gate_up_bias_) return;
  round.add_bias(up, own_biases(c, p[*gate_up_bias_]));
  run(c.stream, activation);
}

void ExpertMlp::compute_on_peers(LayerCall& c, const ParamView& p, const Tensor& o, const Rows& x) const {
  if (o.empty()) return;
  c.expert_exchange->begin(c.stream, offsets_);
  for (int number = 0; number < c.expert_exchange->size(); ++number) {
    const ArenaScope scope(c.scratch);
    const Round round(*this, c, number);
    const Tensor own = round.own(x.values()), rows = round.arrived(own), up = round.alloc(2 * ffn_),
                 a = round.alloc(ffn_), of_rows = round.alloc(hidden_);
    activate(c, p, round, a, up, rows, x.count());
    GroupedProduct down = round.product(of_rows, a);  // 5
    down.transpose_b = true;
    down.most_rows = x.count();
    down_.multiply(c, p, down);
    if (down_bias_) round.add_bias(of_rows, own_biases(c, p[*down_bias_]));
    scatter_rows(c.stream, {.y = o, .x = round.returned(own, of_rows), .index = round.places()});
  }
}

// The gradient of down's bias needs no peer, and is the first part of dweights.
void ExpertMlp::compute_backward_on_peers(LayerCall& c, const ParamView& p, const GradView& g,
                                          const Tensor& d_rows, const Tensor& dweights, const Tensor& dy,
                                          const Rows& x, bool input_gradient) const {
  const Tensor weights = weights_.view({weights_.size(), 1}), dchoices = dweights.view(weights.shape);
  zero(c.stream, dweights);  // choices without a row keep the zero
  if (down_bias_) {
    gather_rows(c.stream, {.y = d_rows, .x = dy, .index = rows_});
    bias_backward(c, p, g, d_rows, down_bias_, dweights);
  }
  const Tensor dbias = gate_up_bias_ ? g[*gate_up_bias_] : Tensor{};
  const bool adds = !dbias.empty() && g.accumulates(*gate_up_bias_);
  c.expert_exchange->begin(c.stream, offsets_);
  for (int number = 0; number < c.expert_exchange->size(); ++number) {
    const ArenaScope scope(c.scratch);
    const Round round(*this, c, number);
    const Tensor own_weights = round.own(weights, round.choices()), row_weights = round.arrived(own_weights),
                 rows = round.arrived(round.own(x.values())), own_d_o = round.own(dy),
                 d_o = round.arrived(own_d_o), up = round.alloc(2 * ffn_), a = round.alloc(ffn_),
                 da = round.alloc(ffn_), d_up = round.alloc(2 * ffn_),
                 d_row_weights = round.alloc(1, DType::f32);
    const GradView of_peer = c.expert_exchange->gradients(c.stream, round.peer());
    activate(c, p, round, a, up, rows, x.count());
    // 6 and 5: as if all weights were 1; then da and a are multiplied by them.
    down_.multiply(c, p, round.product(da, d_o));
    weigh_rows(c.stream, {.dweights = d_row_weights, .da = da, .a = a, .places = {}, .weights = row_weights});
    down_.add_gradient(c, of_peer, round.gradient(d_o, a));
    run(c.stream, activation_.backward(d_up, da, up));              // 4
    gate_up_.add_gradient(c, of_peer, round.gradient(d_up, rows));  // 3
    if (!dbias.empty()) {
      const Tensor sums = round.exchanged(round.bias_gradient(d_up));
      const Tensor part = dbias.slice(round.peer() * sums.shape[0], (round.peer() + 1) * sums.shape[0]);
      adds ? add(c.stream, {.y = part, .a = part, .b = sums}) : copy(c.stream, part, sums);
    }
    scatter_rows(c.stream, {.y = dchoices,
                            .x = round.returned(own_weights, d_row_weights),
                            .index = round.choices(),
                            .add = down_bias_.has_value()});
    if (!input_gradient) continue;
    gate_up_.multiply(c, p, round.product(d_o, d_up));
    scatter_rows(c.stream, {.y = d_rows, .x = round.returned(own_d_o, d_o), .index = round.places()});
  }
}

}  // namespace flatshard
