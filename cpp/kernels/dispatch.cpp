// Selects the kernels for this machine's processor.
#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "kernels/kernels.hpp"

namespace ltls {

namespace baseline {
extern const Kernels table;
}
#if defined(LTLS_X86_BUILDS)
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#endif

namespace {

std::vector<const Kernels*> supported() {
    std::vector<const Kernels*> builds = {&baseline::table};
#if defined(LTLS_X86_BUILDS)
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    if (has_avx2) builds.push_back(&avx2::table);
    if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        builds.push_back(&avx512::table);
#endif
    return builds;
}

constexpr const char* variable = "LTLS_INSTRUCTION_SET";

const Kernels* find(const std::string& name, const std::string& argument) {
    std::string known;
    for (const Kernels* build : supported()) {
        if (name == build->instruction_set) return build;
        known += (known.empty() ? "" : ", ") + std::string(build->instruction_set);
    }
    throw std::invalid_argument(argument + " must be one of this machine's instruction sets (" +
                                known + "), got '" + name + "'");
}

// The best that the processor has, unless the environment names another.
const Kernels* initial() {
    const char* const name = std::getenv(variable);
    return name && *name ? find(name, variable) : supported().back();
}

std::atomic<const Kernels*>& selected() {
    static std::atomic<const Kernels*> kernels{initial()};
    return kernels;
}

}  // namespace

// Defined here, so that its code is never from an AVX build of the kernels.
RowPredictor::~RowPredictor() = default;
ClusterRows::~ClusterRows() = default;
SiblingTrainer::~SiblingTrainer() = default;

// Here rather than inline, so that no build of the kernels has a copy.
void LabelWeightLists::add(Index task, const std::int32_t* its_features, const float* its_values,
                           Index count) {
    labels.push_back({task, static_cast<Index>(features.size()), count});
    features.insert(features.end(), its_features, its_features + count);
    values.insert(values.end(), its_values, its_values + count);
}

const Kernels& kernels() { return *selected().load(std::memory_order_relaxed); }

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const Kernels* build : supported()) names.emplace_back(build->instruction_set);
    return names;
}

std::string use_instruction_set(const std::string& name) {
    return selected().exchange(find(name, "name"))->instruction_set;
}

}  // namespace ltls
