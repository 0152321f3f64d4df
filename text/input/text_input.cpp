#include "text/input/text_input.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/check.h"
#include "runtime/error_context.h"
#include "runtime/text.h"
#include "text/input/text_kind.h"

namespace flatshard {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;
static_assert(kJudgedBytes <= kBufferBytes);

}  // namespace

TextInput::TextInput(const std::string& path) : path_(path), text_(kBufferBytes) {
  file_.open(path, std::ios::binary);
  check(file_.is_open(), path, ": cannot open: ", std::strerror(errno));
  check(!std::filesystem::is_directory(path), path, ": is a folder, must be a file: name the files in it");
  check_text_name(path);
  open_decompressor();
  while (end_ < kJudgedBytes && read_more()) continue;
  check_text_content(path_, {text_.data(), end_});
}

void TextInput::open_decompressor() {
  raw_.resize(kBufferBytes);
  fill_raw();
  const Compression is = compression_of({raw_.data(), raw_end_}), named = named_compression(path_);
  check(named == Compression::none || is == named, path_, ": is named like a file of ",
        named == Compression::gzip ? "gzip" : "zstd",
        ", but its content is not: rename it, or fetch it again");
  with_place(path_, [&] {
    if (is == Compression::gzip) decompressor_ = make_gzip_decompressor();
    if (is == Compression::zstd) decompressor_ = make_zstd_decompressor();
  });
}

void TextInput::fill_raw() {
  file_.read(raw_.data(), static_cast<std::streamsize>(raw_.size()));
  check(!file_.bad(), path_, ": cannot read: ", std::strerror(errno));
  raw_begin_ = 0;
  raw_end_ = static_cast<size_t>(file_.gcount());
  file_bytes_ += file_.gcount();
  ended_ = file_.eof();
}

bool TextInput::read_more() {
  for (;;) {
    if (raw_begin_ == raw_end_ && !ended_) fill_raw();
    const std::span<const char> in(raw_.data() + raw_begin_, raw_end_ - raw_begin_);
    const std::span<char> out(text_.data() + end_, text_.size() - end_);
    Decompressor::Step step{std::min(in.size(), out.size()), 0};
    if (decompressor_) {
      step = with_place(path_, [&] { return decompressor_->decode(in, out); });
    } else {
      std::copy_n(in.begin(), step.read, out.begin());
      step.written = step.read;
    }
    raw_begin_ += step.read;
    end_ += step.written;
    if (step.written > 0) return true;
    if (step.read > 0 || !ended_) continue;
    check(!decompressor_ || decompressor_->is_complete(), path_,
          ": ends in the middle of its compressed data: it is cut off");
    return false;
  }
}

std::string_view TextInput::next() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    read_more();
  }
  return {text_.data() + begin_, end_ - begin_};
}

void TextInput::skip(size_t bytes) {
  begin_ += bytes;
  bytes_ += static_cast<int64_t>(bytes);
}

bool next_line(TextInput& input, std::string& line, bool& has_break, int64_t most) {
  line.clear();
  has_break = false;
  for (std::string_view text; !(text = input.next()).empty();) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (std::ssize(line) + static_cast<int64_t>(end) > most)
      fail(str(input.path(), ": has a line of more than ", human_bytes(most), ", must be shorter"));
    line.append(text.substr(0, end));
    has_break = end < text.size();
    input.skip(end + (has_break ? 1 : 0));
    if (has_break) return true;
  }
  return !line.empty();
}

}  // namespace flatshard
