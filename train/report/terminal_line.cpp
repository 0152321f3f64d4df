#include "train/report/terminal_line.h"

#include <ostream>

#include "runtime/check.h"

namespace flatshard {
namespace {

// Terminal codes. With wrapping off, a line that is wider than the window is cut at its edge; wrapped, its
// first row would stay behind when it is rewritten. The row is cleared before the text and not after it,
// since a cursor at the edge would clear the last character. All that is cut is drawn in the last column, one
// character upon the other, so a blank ends the line.
constexpr char kRewrite[] = "\r\x1b[K", kWrapOff[] = "\x1b[?7l", kWrapOn[] = "\x1b[?7h";

}  // namespace

void TerminalLine::show(const std::string& text, const std::vector<std::string>& above) {
  std::string all;
  for (const std::string& line : above) all += kRewrite + line + '\n';
  out_ << all + str(kRewrite, kWrapOff, text, ' ', kWrapOn) << std::flush;
  open_ = true;
}

void TerminalLine::finish() {
  if (open_) out_ << '\n' << std::flush;
  open_ = false;
}

}  // namespace flatshard
