#include "checkpoint/checksums.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iomanip>
#include <sstream>

#include "runtime/check.h"
#include "runtime/crc64.h"
#include "runtime/input_file.h"
#include "runtime/read_stream.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

constexpr int64_t kBlock = BlockSums::kBlockBytes;

std::span<const std::byte> as_bytes(const void* data, size_t bytes) {
  return {static_cast<const std::byte*>(data), bytes};
}

// The sum of one block, in the form that processes exchange.
struct Packed {
  int64_t block;
  uint64_t sum;
};

// Removes the next word of a line and parses it as a number of this base.
template <class Number>
Number take_number(std::string_view& line, int base, const std::string& where) {
  const std::string_view word = line.substr(0, line.find(' '));
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  check(error == std::errc{} && end == word.data() + word.size() && word.size() < line.size(), where,
        ": the line must be CRC, first byte, number of bytes and file name");
  line.remove_prefix(word.size() + 1);
  return value;
}

std::string path_in(const std::string& folder, const std::string& name) { return folder + "/" + name; }

void check_length(const InputFile& file, const Checksums::File& expected) {
  check(file.size() == expected.bytes, file.path(), ": has ", file.size(), " bytes, was written with ",
        expected.bytes);
}

void check_block(const std::string& path, const Checksums::File& expected, size_t block, uint64_t found) {
  const int64_t begin = static_cast<int64_t>(block) * kBlock, end = std::min(begin + kBlock, expected.bytes);
  check(found == expected.blocks[block], path, ": damaged between byte ", begin, " and byte ", end,
        ": their CRC is ", std::hex, found, ", must be ", expected.blocks[block]);
}

// Calls visit(block number, CRC) for each block of a file.
template <class Visit>
void each_block(const InputFile& file, Visit&& visit) {
  ReadStream bytes;
  bytes.add({.file = &file, .begin = 0, .size = file.size()});
  for (int64_t begin = 0; begin < file.size(); begin += kBlock) {
    const int64_t n = std::min(kBlock, file.size() - begin);
    uint64_t sum = 0;
    bytes.read({.file = &file, .begin = begin, .size = n},
               [&](int64_t, std::span<const std::byte> piece) { sum = crc64_add(sum, piece); });
    visit(static_cast<size_t>(begin / kBlock), crc64_finish(sum, static_cast<uint64_t>(n)));
  }
}

}  // namespace

int64_t BlockSums::end_of(int64_t block) const { return std::min((block + 1) * kBlock, file_bytes_); }

void BlockSums::add(int64_t offset, const void* data, int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const int64_t block = offset / kBlock, n = std::min(bytes, end_of(block) - offset);
    check(n > 0, "checksums: byte ", offset, " is outside of a file of ", file_bytes_, " bytes");
    const uint64_t sum = crc64_add(0, as_bytes(at, static_cast<size_t>(n)));
    linear_[block] ^= crc64_carry(sum, static_cast<uint64_t>(end_of(block) - offset - n));
    at += n;
    offset += n;
    bytes -= n;
  }
}

std::string BlockSums::packed() const {
  std::string text;
  for (const auto& [block, sum] : linear_) {
    const Packed packed{block, sum};
    text.append(reinterpret_cast<const char*>(&packed), sizeof(packed));
  }
  return text;
}

void BlockSums::merge(std::string_view text) {
  for (; text.size() >= sizeof(Packed); text.remove_prefix(sizeof(Packed))) {
    Packed packed;
    std::memcpy(&packed, text.data(), sizeof(packed));
    linear_[packed.block] ^= packed.sum;
  }
}

std::vector<uint64_t> BlockSums::finished() const {
  std::vector<uint64_t> sums;
  for (int64_t block = 0; block * kBlock < file_bytes_; ++block) {
    const auto found = linear_.find(block);
    sums.push_back(crc64_finish(found == linear_.end() ? 0 : found->second,
                                static_cast<uint64_t>(end_of(block) - block * kBlock)));
  }
  return sums;
}

void Checksums::add(const std::string& name, const BlockSums& sums) {
  files_[name] = {.bytes = sums.file_bytes(), .blocks = sums.finished()};
}

void Checksums::add(const std::string& name, std::string_view text) {
  BlockSums sums(static_cast<int64_t>(text.size()));
  sums.add(0, text.data(), sums.file_bytes());
  add(name, sums);
}

std::string Checksums::text() const {
  std::ostringstream out;
  for (const auto& [name, file] : files_)
    for (size_t i = 0; i < file.blocks.size(); ++i) {
      const int64_t begin = static_cast<int64_t>(i) * kBlock;
      out << std::hex << std::setw(16) << std::setfill('0') << file.blocks[i] << std::dec << ' ' << begin
          << ' ' << std::min(kBlock, file.bytes - begin) << ' ' << name << '\n';
    }
  return std::move(out).str();
}

Checksums Checksums::read(const std::string& folder) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  const std::string path = folder + "/" + kFileName, content = read_whole_file(path, kMostBytes);
  std::string_view text = content;
  Checksums sums;
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string where = str(path, ':', number);
    const size_t end = text.find('\n');
    check(end != text.npos, where, ": the line is cut off");
    std::string_view line = text.substr(0, end);
    const auto crc = take_number<uint64_t>(line, 16, where);
    const auto begin = take_number<int64_t>(line, 10, where);
    const auto bytes = take_number<int64_t>(line, 10, where);
    check(!line.empty() && line.find('/') == line.npos && line != "." && line != "..", where, ": \"", line,
          "\" is not the name of a file in this folder");
    File& of = sums.files_[std::string(line)];
    check(begin == of.bytes && begin % kBlock == 0 && bytes > 0 && bytes <= kBlock &&
              begin <= INT64_MAX - bytes,
          where, ": ", bytes, " bytes from ", begin, ", must be a block of 1 to ", kBlock,
          " bytes that begins at ", of.bytes);
    of.bytes = begin + bytes;
    of.blocks.push_back(crc);
    text.remove_prefix(end + 1);
  }
  return sums;
}

void Checksums::check_lengths(const std::string& folder) const {
  for (const auto& [name, expected] : files_) check_length(InputFile(path_in(folder, name)), expected);
}

void Checksums::compare(const std::string& folder, const std::string& name,
                        const std::vector<uint64_t>& found) const {
  const File& expected = files_.at(name);
  for (size_t i = 0; i < expected.blocks.size(); ++i)
    check_block(path_in(folder, name), expected, i, found.at(i));
}

void Checksums::verify(const std::string& folder, const std::string& name) const {
  const InputFile file(path_in(folder, name));
  const File& expected = files_.at(name);
  check_length(file, expected);
  each_block(file, [&](size_t block, uint64_t sum) { check_block(file.path(), expected, block, sum); });
}

std::vector<std::string> Checksums::damages(const std::string& folder,
                                            const std::function<void(int64_t)>& seen) const {
  std::vector<std::string> found;
  const auto note = [&](auto&& work) {
    try {
      work();
    } catch (const Error& error) {
      found.push_back(error.what());
    }
  };
  for (const auto& [name, expected] : files_)
    note([&] {
      const InputFile file(path_in(folder, name));
      check_length(file, expected);
      each_block(file, [&](size_t block, uint64_t sum) {
        note([&] { check_block(file.path(), expected, block, sum); });
        seen(std::min(kBlock, expected.bytes - static_cast<int64_t>(block) * kBlock));
      });
    });
  return found;
}

int64_t Checksums::bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, file] : files_) bytes += file.bytes;
  return bytes;
}

}  // namespace flatshard
