/* An error text for the caller of publish(). */
#ifndef TP_FAULT_H
#define TP_FAULT_H

typedef struct tp_fault {
    char text[128];
} tp_fault;

/* Writes the text. Returns -1, so that a caller can write `return tp_fault_set(...)`. */
int tp_fault_set(tp_fault *fault, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
