#pragma once
// A hash table from pairs of token ids to values, for the inner loops of encoding and training: open
// addressing in one array, at most half full.

#include <cstdint>
#include <vector>

namespace flatshard {

inline uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

template <class Value>
class PairTable {
 public:
  explicit PairTable(size_t expected = 0) {
    size_t slots = 16;
    while (slots < 2 * expected) slots *= 2;
    slots_.resize(slots);
  }

  // Null if the pair is not in the table.
  const Value* find(uint64_t key) const {
    const Slot& slot = slots_[place(key)];
    return slot.key == key ? &slot.value : nullptr;
  }
  // The value of the pair; a missing pair is added. References are valid until the next new pair.
  Value& operator[](uint64_t key) {
    size_t at = place(key);
    if (slots_[at].key != key) {
      if (2 * ++count_ > slots_.size()) {
        grow();
        at = place(key);
      }
      slots_[at].key = key;
    }
    return slots_[at].value;
  }
  size_t size() const { return count_; }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_)
      if (slot.key != kEmpty) visit(slot.key, slot.value);
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // never a pair of ids, which are not negative
  struct Slot {
    uint64_t key = kEmpty;
    Value value{};
  };

  size_t place(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    size_t at = (hash ^ hash >> 32) & mask;
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (Slot& slot : old)
      if (slot.key != kEmpty) slots_[place(slot.key)] = std::move(slot);
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace flatshard
