#pragma once
// Activations in host memory until their backward pass (train.offload_activations). Two pages on the device
// hold those of two neighboring layers: one is in use while the other is copied to host memory, or comes
// back. Each set of activations, one of a layer in a micro-batch, goes through
//
//   claim      the page of its layer is free: compute writes it
//   store      its copy to host memory begins
//   fetch      its copy to the page begins, unless the page still has it
//   use        compute may read it
//   release    compute has read it, for now
//
// A layer has the same page, and the same addresses in it, in the forward and in the backward pass.
// activation_pages.cpp contains every record and every wait between compute and the copy streams. Results do
// not depend on it.

#include <array>
#include <map>
#include <utility>

#include "comm/shard_placement.h"
#include "runtime/arena.h"

namespace flatshard {

class ActivationPages {
 public:
  // The activations that a layer writes in the micro-batch of this slot.
  using Key = std::pair<size_t, int>;  // slot, layer

  // The pages are the arenas `even` and `odd`, for layers with such numbers.
  ActivationPages(CopyStreams copies, Arena& even, Arena& odd, Arena& host);

  void begin();  // of a step: host memory is allocated anew
  // The page, empty.
  Arena& claim(Stream& compute, const Key& key);
  Arena& page(const Key& key) { return *pages_[index(key)].arena; }
  void store(Stream& compute, const Key& key);
  // Does nothing if they were not stored in this step.
  void fetch(const Key& key);
  void use(Stream& compute, const Key& key);
  void release(Stream& compute, const Key& key);
  // Makes compute wait until host memory has all of them.
  void finish(Stream& compute);

 private:
  struct Page {
    Arena* arena;
    Key tenant{};
    bool has_tenant = false;
    Event written, stored, arrived, released;
  };
  struct Home {
    Tensor page, host;  // bytes
  };
  static size_t index(const Key& key) { return static_cast<size_t>(key.second % 2); }

  CopyStreams copies_;
  std::array<Page, 2> pages_;
  Arena& host_;
  std::map<Key, Home> homes_;
};

}  // namespace flatshard
