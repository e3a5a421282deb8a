/* Every number that C and Python share. Python reads each of them from here, and never repeats one. */
#include "py/constants_binding.h"

#include "pack/send_window.h"
#include "stream/inbox.h"
#include "table/table_types.h"
#include "text/stops.h"
#include "text/vocab.h"

#define SAME(name) {#name, TP_##name}

static const struct {
    const char *name;
    long long value;
} constants[] = {
    SAME(WIRE_VERSION),

    SAME(KIND_LANE),
    SAME(KIND_STEP),
    SAME(KIND_OUTPUT),
    SAME(KIND_CONTROL),

    SAME(DP_BITS),
    SAME(SLOT_BITS),
    SAME(GENERATION_BITS),

    SAME(ROW_OK),
    SAME(ROW_DRAINED),
    SAME(ROW_RECOVERY_STOP),
    SAME(ROW_ERROR),
    SAME(ROW_BAD_TOKEN),
    SAME(ROW_FINISHED),
    SAME(ROW_REFUSED),

    SAME(FINISH_NONE),
    SAME(FINISH_STOP),
    SAME(FINISH_LENGTH),
    SAME(FINISH_ABORT),
    SAME(FINISH_ERROR),

    SAME(ERROR_NONE),
    SAME(ERROR_INVALID),
    SAME(ERROR_UNAVAILABLE),
    SAME(ERROR_LOST),
    SAME(ERROR_SLOW),
    SAME(ERROR_GAP),
    SAME(ERROR_INTERNAL),
    SAME(ERROR_CRASHES),

    SAME(STEP_HANDLES),
    SAME(STEP_COUNTS),
    SAME(STEP_TOKENS),
    SAME(STEP_STATUS),
    SAME(STEP_POSITION),
    SAME(STEP_LP_K),
    SAME(STEP_LP_IDS),
    SAME(STEP_LP_VALUES),
    SAME(STEP_LP_RANKS),
    SAME(STEP_EXTRAS_LEN),
    SAME(STEP_EXTRAS),

    SAME(OUT_KEYS),
    SAME(OUT_COUNTS),
    SAME(OUT_TOKENS),
    SAME(OUT_OFFSETS),
    SAME(OUT_FINISH),
    SAME(OUT_STOP_REASON),
    SAME(OUT_LP_K),
    SAME(OUT_LP_IDS),
    SAME(OUT_LP_VALUES),
    SAME(OUT_LP_RANKS),
    SAME(OUT_ERROR_LEN),
    SAME(OUT_ERROR),
    SAME(OUT_TEXT_LEN),
    SAME(OUT_TEXT),
    SAME(OUT_TEXT_OFFSET),
    SAME(OUT_STOP_STRING),
    SAME(OUT_CACHED),
    SAME(OUT_EXTRAS_LEN),
    SAME(OUT_EXTRAS),
    SAME(OUT_EXTRAS_OFFSET),
    SAME(OUT_ERROR_CODE),
    SAME(OUT_ERROR_FIELD),
    SAME(OFFSET_UNKNOWN),
    SAME(NO_STOP),
    SAME(NO_TOKEN),

    {"OUTPUT_CUMULATIVE", TP_CUMULATIVE},
    {"OUTPUT_DELTA", TP_DELTA},
    {"OUTPUT_FINAL_ONLY", TP_FINAL_ONLY},

    {"STATE_GONE", TP_GONE},
    {"STATE_PARKED", TP_PARKED},
    {"STATE_RUNNING", TP_RUNNING},
    {"STATE_PREEMPTING", TP_PREEMPTING},
    {"STATE_ABORTING", TP_ABORTING},
    {"STATE_LINGERING", TP_LINGERING},

    {"EVENT_FINISHED", TP_EV_FINISHED},
    {"EVENT_ROW_ERROR", TP_EV_ROW_ERROR},
    {"EVENT_DRAINED", TP_EV_DRAINED},
    {"EVENT_GAP", TP_EV_GAP},
    {"EVENT_PREFILLED", TP_EV_PREFILLED},
    {"EVENT_PARKED", TP_EV_PARKED},
    {"EVENT_PARK_LOST", TP_EV_PARK_LOST},
    {"EVENT_CROWDED", TP_EV_CROWDED},
    {"EVENT_SENT", TP_EV_SENT},
    {"EVENT_SHED", TP_EV_SHED},

    SAME(CAUSE_RECOVERY_STOP),
    SAME(CAUSE_WORKER),
    SAME(CAUSE_REFUSED),
    SAME(CAUSE_BAD_TOKEN),
    SAME(CAUSE_STATUS),
    SAME(CAUSE_TOKEN),
    SAME(CAUSE_MEMORY),
    SAME(CAUSE_TEXT),
    SAME(CAUSE_EXTRAS),

    SAME(NOTE_ENDED),
    SAME(NOTE_AHEAD),
    SAME(NOTE_SLOW),
    SAME(NOTE_TORN),
    SAME(NOTE_APART),

    SAME(WORD_NONE),
    SAME(WORD_SPECIAL),
    SAME(WORD_ADDED),
    SAME(WORD_BYTE),
    SAME(MAX_WORD),
    SAME(MAX_STOP_BYTES),
    SAME(MAX_ERROR),

    {"SENT_FIRST", TP_FIRST},
    {"SENT_LOOK", TP_LOOK},
    {"SEND_CLOSED", TP_CLOSED},
    {"SEND_MISADDRESSED", TP_MISADDRESSED},
    {"SEND_FULL", TP_FULL},
    {"SEND_REFUSED", TP_REFUSED},
    SAME(FRAME_OVERHEAD),
};

int tp_init_constants(PyObject *module) {
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        PyObject *value = PyLong_FromLongLong(constants[i].value);
        int added = value == NULL ? -1 : PyModule_AddObjectRef(module, constants[i].name, value);
        Py_XDECREF(value);
        if (added < 0) {
            return -1;
        }
    }
    return 0;
}
