#include "runtime/terminal_line.h"

#include <ostream>

#include "runtime/check.h"

namespace flatshard {
namespace {

// Terminal codes. Wrapping is off because the first row of a wrapped line would remain when the line is
// rewritten. The row is cleared before the text, not after it: a cursor at the right edge would clear the
// last character. Terminals draw all excess characters in the last column, so a blank ends the line.
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
