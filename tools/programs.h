#pragma once
// The programs, callable from tests with their own streams. Each returns its exit code, which is 0 on success
// and after --help; a failure prints one line on err that starts with the program's name. The main function
// of each is made from main.cpp.in.

#include "train/command_line/program.h"

namespace flatshard {

// Trains a model, plans a run, or searches for its settings. Returns 75 if a signal stopped a run with
// --resume auto. Fails with 1, after one line or several; an error on one rank ends all ranks.
int run_train(const Arguments& arguments, const Streams& streams);

// Makes token files from texts and chats. Fails with 1. After a failure existing output files are unchanged
// and no new files remain, unless only printing the summary failed.
int run_prepare(const Arguments& arguments, const Streams& streams);

// Continues prompts with a trained model. Fails with 1.
int run_generate(const Arguments& arguments, const Streams& streams);

// Prints loss and perplexity of a text, or the similarity score of answers. Under mpirun the ranks divide the
// work, and rank 0 prints. Fails with 1; an error on one rank ends all ranks.
int run_evaluate(const Arguments& arguments, const Streams& streams);

// Writes the report page of one run or several. Fails with 1.
int run_report(const Arguments& arguments, const Streams& streams);

// Works on checkpoints and models. Returns 1 if verify found damage or diff a difference. Fails with 2.
int run_ckpt(const Arguments& arguments, const Streams& streams);

}  // namespace flatshard
