#pragma once
// A line of a terminal that is rewritten in place and cut at the terminal's edge; lines above it stay.

#include <iosfwd>
#include <string>
#include <vector>

namespace flatshard {

class TerminalLine {
 public:
  explicit TerminalLine(std::ostream& out) : out_(out) {}
  ~TerminalLine() { finish(); }  // an error message then starts on its own line
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;

  void show(const std::string& text, const std::vector<std::string>& above = {});
  // Ends the current line, if any; another may follow.
  void finish();

 private:
  std::ostream& out_;
  bool open_ = false;  // the cursor is at the end of our line
};

}  // namespace flatshard
