#pragma once
// The exchange of tokens and experts among the ranks of an expert group (model/expert_exchange.h), over the
// communicator of the stream that computes.
//
// The host reads the number of rows once for each pass of a layer, so that ranks exchange and compute only
// the rows in use. It cannot where work is captured in CUDA graphs or deferred to test stream orders; all
// tensors then have the most rows.

#include "model/expert_exchange.h"
#include "runtime/arena.h"
#include "runtime/mirror.h"
#include "train/step/layer_units.h"

namespace flatshard {

class ExpertRanks : public ExpertExchange {
 public:
  // `experts` are those of a block. If work is captured or deferred, the host `reads` no offsets. Those of
  // all ranks are in `arena`, and on the host in `staging`.
  ExpertRanks(LayerUnits& units, int64_t experts, bool reads, Arena& arena, Arena& staging);

  // To be called before a backward pass: the layer, and the lane whose gradients it computes.
  void set_lane(int layer, int lane, int64_t micro) { layer_ = layer, lane_ = lane, micro_ = micro; }

  void begin(Stream& stream, const Tensor& offsets) override;
  Tensor offsets(int place) const override { return of_rank(offsets_.device, place); }
  int64_t rows(const Stream& stream, int from, int to, int64_t most, int64_t expected) const override;
  void exchange(Stream& stream, const Tensor& received, const Tensor& sent, int peer) override {
    ranks_.exchange(stream, received, sent, peer, "experts");
  }
  GradView gradients(Stream& stream, int peer) override {
    return units_.grads_of_peer(layer_, stream, peer, lane_, micro_);
  }

 private:
  static Tensor of_rank(const Tensor& offsets, int place) {
    return offsets.slice(place, place + 1).view({offsets.shape[1]});
  }

  LayerUnits& units_;
  Communicator& ranks_;
  bool reads_, known_ = false;  // whether the host knows the offsets of the pass
  Mirror offsets_;              // (G, E + 1) i32
  int layer_ = 0, lane_ = 0;
  int64_t micro_ = 0;
};

}  // namespace flatshard
