#pragma once
// The order in which the thread blocks of attention start on a GPU: the longest first, over all documents, so
// that no long block starts when the others end. A document's rows of queries, or of keys, are cut into
// blocks of `size` rows. The blocks take the slots of a grid in the order of their costs; empty slots come
// last.
//
// The cost of a block is the number of blocks of the other side that it visits. With a causal mask every next
// block of a document costs one more, if it has queries, or one less, if it has keys. A window cuts long
// blocks to one length, which keeps the order. Without a causal mask a block visits the whole other side.
//
// A block finds its slot by itself, in about log2(cost) + 4 passes over all documents. With more documents
// than kMostSorted these passes would take longer than most blocks, and in all they would grow with the
// square of the documents. Slots then have the order of documents, which bisection finds; there are so many
// blocks that their order changes little.

#include <algorithm>
#include <cstdint>

namespace flatshard::cuda {

// The documents of a batch, by the rows at which they start; the last boundary is the number of rows.
struct Documents {
  const int32_t* boundaries;
  int count, rows;

  constexpr int first_row(int document) const { return boundaries[document]; }
  constexpr int length(int document) const { return boundaries[document + 1] - boundaries[document]; }
  constexpr int blocks(int document, int size) const { return (length(document) + size - 1) / size; }
  // At least the blocks of all documents.
  constexpr int slots(int size) const { return rows / size + count; }
  // A slot for the first block of a document, if slots have the order of documents: from it on, up to the one
  // of the next document, there are as many slots as the document has blocks, or one more.
  constexpr int first_slot(int document, int size) const { return first_row(document) / size + document; }
};

// The threads that search together: one thread, as on the host. On the GPU a warp has the same members.
struct OneLane {
  static constexpr int kCount = 1;
  static constexpr int index() { return 0; }
  static constexpr int sum(int value) { return value; }
  static constexpr int sum_before(int) { return 0; }  // of the lanes with a lower index
  static constexpr int most(int value) { return value; }
};

// All lanes run every loop equally often, so that the compiler knows that they stay together.
struct BlockOrder {
  static constexpr int kMostSorted = 128;  // an estimated 2 us for a search by a warp
  Documents own, other;                    // the rows that are cut into blocks; the rows that these visit
  int size;                                // rows of a block
  bool causal, owns_keys;

  // Block `index` of a document.
  struct Block {
    int document, index;
    constexpr bool empty() const { return document < 0; }
  };

  constexpr bool is_sorted() const { return own.count <= kMostSorted; }

  // The number of blocks of a document, or of all documents, that cost at least `cost`.
  constexpr int at_least(int cost, int document) const {
    const int all = own.blocks(document, size);
    if (cost == 0) return all;
    if (cost > other.blocks(document, size)) return 0;
    return causal ? std::clamp((owns_keys ? own : other).blocks(document, size) - cost + 1, 0, all) : all;
  }
  template <class Lanes>
  constexpr int at_least(int cost) const {
    int found = 0;
    for (int first = 0; first < own.count; first += Lanes::kCount) {
      const int d = first + Lanes::index();
      found += d < own.count ? at_least(cost, d) : 0;
    }
    return Lanes::sum(found);
  }

  // The block of a slot. All lanes call it and get the same one.
  template <class Lanes>
  constexpr Block block_of(int slot) const {
    if (!is_sorted()) return block_in_order_of_documents(slot);
    if (at_least<Lanes>(0) <= slot) return {-1, 0};
    int most = 0;
    for (int first = 0; first < own.count; first += Lanes::kCount) {
      const int d = first + Lanes::index();
      most = std::max(most, d < own.count ? other.blocks(d, size) : 0);
    }
    // `cost` becomes the largest that more than `slot` blocks reach: the cost of the slot's block.
    int cost = 0, above = Lanes::most(most) + 1;
    while (above - cost > 1) {
      const int middle = (cost + above) / 2;
      (at_least<Lanes>(middle) > slot ? cost : above) = middle;
    }
    int rank = slot - at_least<Lanes>(above);  // among the blocks of this cost
    for (int first = 0;; first += Lanes::kCount) {
      const int d = first + Lanes::index();
      const bool exists = d < own.count;
      const int longer = exists ? at_least(above, d) : 0, equal = exists ? at_least(cost, d) - longer : 0;
      if (const int all = Lanes::sum(equal); rank >= all) {
        rank -= all;
        continue;
      }
      // In one lane the rank falls into its document, whose nth longest block it is.
      const int place = rank - Lanes::sum_before(equal);
      const bool here = place >= 0 && place < equal;
      const int document = Lanes::sum(here ? d : 0), nth = Lanes::sum(here ? longer + place : 0);
      return {document, owns_keys ? nth : own.blocks(document, size) - 1 - nth};
    }
  }

 private:
  // The longest block of a document comes first. Some slots between documents are empty.
  constexpr Block block_in_order_of_documents(int slot) const {
    int document = 0;
    for (int end = own.count; end - document > 1;) {
      const int middle = (document + end) / 2;
      (own.first_slot(middle, size) <= slot ? document : end) = middle;
    }
    const int nth = slot - own.first_slot(document, size), blocks = own.blocks(document, size);
    if (nth >= blocks) return {-1, 0};
    return {document, owns_keys ? nth : blocks - 1 - nth};
  }
};

}  // namespace flatshard::cuda
