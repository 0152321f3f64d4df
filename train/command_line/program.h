#pragma once
// The shell of every program: standard streams and limits on files, the command line, the ranks of a job, the
// error of a failure, and the exit code. Exceptions end here.

#include <chrono>
#include <functional>
#include <iosfwd>
#include <string>

#include "comm/world.h"
#include "train/command_line/command.h"

namespace flatshard {

struct Streams {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false, err_is_terminal = false;
};

// Runs the command that the arguments select and returns its exit code; or `failure`, after one line on err
// that starts with the program's name, if it fails or its output is lost.
int run_program(const Command& program, const Arguments& arguments, const Streams& streams, int failure = 1);

// A program whose processes may be the ranks of one job.
struct RankProgram {
  struct Ending {
    Ending(int exit_code, bool output_matters = true) : code(exit_code), needs_output(output_matters) {}
    int code;
    bool needs_output;  // lost output is a failure
  };

  std::string name;
  // Reads the command line. Returns how long the ranks may take to meet.
  std::function<std::chrono::seconds()> read;
  std::function<Ending(World&)> run;
};
inline constexpr std::chrono::seconds kMeetingTime{120};

// Returns the exit code: that of run(); or 1 after an error on err that starts with the program's name. It
// has one line, or one for each of several problems (runtime/problems.h). An error of read() waits until the
// ranks have met, so that one rank reports it. An error on one rank ends all ranks.
int run_on_ranks(const RankProgram& program, const Streams& streams);

}  // namespace flatshard
