#include "train/command_line/program.h"

#include <cstdlib>
#include <memory>
#include <ostream>

#include "runtime/check.h"
#include "runtime/host_memory.h"
#include "runtime/program_end.h"
#include "runtime/reason.h"
#include "runtime/standard_streams.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

void report(const std::string& name, const std::string& text, const Streams& streams) {
  streams.out << std::flush;
  streams.err << name << ": " << text << std::endl;
}

// Libraries crash if they can allocate nearly nothing, even in the code that they run at the end of a
// process.
void prepare_process(const std::string& name, const Streams& streams, int failure) {
  constexpr int64_t kLeast = int64_t{64} << 20;
  reserve_standard_streams();
  survive_file_limits();
  try {
    require_address_space(kLeast, "the libraries of this program");
  } catch (const Error& error) {
    report(name, error.what(), streams);
    std::_Exit(failure);
  }
}

}  // namespace

int run_program(const Command& program, const Arguments& arguments, const Streams& streams, int failure) {
  prepare_process(program.name, streams, failure);
  const auto end = [&](int code) {
    return end_program(program.name, code, streams.out, streams.err, failure);
  };
  try {
    return end(parse_arguments(program, arguments).run());
  } catch (const Answer& answer) {
    streams.out << answer.text;
    return end(0);
  } catch (const std::exception& error) {
    report(program.name, report_of(error), streams);
    return failure;
  }
}

int run_on_ranks(const RankProgram& program, const Streams& streams) {
  prepare_process(program.name, streams, 1);
  const auto end = [&](int code) { return end_program(program.name, code, streams.out, streams.err); };
  std::exception_ptr mistake;
  const auto read = [&] {
    try {
      return program.read();
    } catch (...) {
      mistake = std::current_exception();
      return kMeetingTime;
    }
  };
  const std::chrono::seconds meeting_time = read();
  std::unique_ptr<World> world;
  try {
    world = std::make_unique<World>(meeting_time);
    if (mistake) std::rethrow_exception(mistake);
    const RankProgram::Ending ending = program.run(*world);
    return ending.needs_output ? end(ending.code) : ending.code;
  } catch (const Answer& answer) {
    if (world->rank() == 0) streams.out << answer.text;
    return end(0);
  } catch (const std::exception& error) {
    const std::string text = report_of(error);
    streams.out << std::flush;
    if (world && world->size() > 1) world->end_all_ranks(text);  // lets rank 0 report first
    report(program.name, text, streams);
    return 1;
  }
}

}  // namespace flatshard
