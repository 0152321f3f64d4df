#include "runtime/illegal_instruction.h"

#include <csignal>
#include <cstring>
#include <unistd.h>

#include "build_info.h"

namespace flatshard {
namespace {

const char* program_name = "";

void print(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // nothing else can be done in a handler
}

void explain(int signal) {
  print(program_name);
  print(": this processor lacks an instruction that the program was compiled with (");
  print(*kCompilerFlags ? kCompilerFlags : "the compiler's default processor");
  print("); compile with -DFLATSHARD_NATIVE=OFF for other processors\n");
  std::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

void explain_illegal_instructions(const char* program) {
  program_name = program;
  std::signal(SIGILL, explain);
}

}  // namespace flatshard
