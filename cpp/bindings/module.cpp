// The extension module.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.hpp"
#include "core/exit_after_signal.hpp"
#include "core/parallel.hpp"
#include "kernels/kernels.hpp"

using namespace nb::literals;
using namespace ltls;

NB_MODULE(_engine, module) {
    make_fork_safe();
    kernels();  // an error if the environment names an instruction set that the processor lacks
    nb::set_leak_warnings(false);  // objects that live until the interpreter exits are not leaks
    bind_structure(module);
    bind_linear(module);
    bind_training(module);
    bind_inference(module);
    bind_predictor(module);
    bind_siblings(module);
    bind_vectors(module);
    bind_text(module);
    bind_ngrams(module);
    module.def("instruction_sets", &instruction_sets);
    module.def("instruction_set", [] { return std::string(kernels().instruction_set); });
    module.def("use_instruction_set", &use_instruction_set, "name"_a);
    module.def("threads_for", &threads_for, "n_jobs"_a);
#ifndef _WIN32
    module.def("exit_after_signal", &exit_after_signal, "pipe"_a, "seconds"_a);
#endif
}
