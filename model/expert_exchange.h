#pragma once
// Expert parallelism: G consecutive ranks, an expert group, divide the experts of each block among them. Each
// rank computes the experts that it owns, for the tokens of all ranks of its group. Sharded parameters do the
// opposite: they gather the weights of experts where the tokens are.
//
// The ranks exchange in G rounds of pairs: in round i the rank at place p of its group exchanges with the
// rank at place p ^ i. A rank sends the rows of its tokens that chose the peer's experts, and gets them back
// as the experts' outputs; in between it computes the rows that the peer has sent. So memory is planned for
// the rows of one peer at a time.
//
// A peer's rows arrive in the same segments as on the peer (kernels/expert_rows.h), so that products give the
// same bits as there. The gradients of experts are computed for the lane of each rank apart, and added up in
// the order of lanes.

#include "runtime/param.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

class ExpertExchange {
 public:
  virtual ~ExpertExchange() = default;

  int size() const { return size_; }    // the ranks of a group: a power of two, which divides the experts
  int place() const { return place_; }  // this rank's place in its group; it owns part `place` of the experts

  // Begins the exchanges of a pass: each rank learns the offsets of the others' segments, (E + 1) i32.
  virtual void begin(Stream& stream, const Tensor& offsets) = 0;
  // The offsets of the rank at a place.
  virtual Tensor offsets(int place) const = 0;
  // The rows that the rank at place `from` sends to the one at place `to`, at least a segment's; `most` if
  // the host does not know them, `expected` in a recording.
  virtual int64_t rows(const Stream& stream, int from, int to, int64_t most, int64_t expected) const = 0;
  virtual void exchange(Stream& stream, const Tensor& received, const Tensor& sent, int peer) = 0;
  // The gradients of this rank's experts for the tokens of the rank at a place.
  virtual GradView gradients(Stream& stream, int peer) = 0;

 protected:
  ExpertExchange(int size, int place) : size_(size), place_(place) {}

 private:
  int size_, place_;
};

}  // namespace flatshard
