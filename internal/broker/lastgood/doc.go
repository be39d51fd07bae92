// Package lastgood keeps the last good view of a fleet on disk, so that a broker that restarts during an outage goes on with what it knew.
//
// It guarantees that
//
//   - a file is whole or it is not believed: it carries its length and a checksum over everything, and what is cut off, changed in a
//     single bit, longer than it says, or of another fleet is refused with the reason;
//   - writing leaves either the old file or the new one, durable, also when the disk is full, the power fails or the process is killed;
//   - the age of what is read is never less than is known for certain.
//
// How the age survives a restart: the file has the age at which it was written, and two clocks of that moment. If the machine has not
// been started since (its boot has an identifier), CLOCK_BOOTTIME tells exactly how much time has passed; steps of the wall clock do not
// count at all. If it has, the wall clock tells, but the time since the machine's start, which CLOCK_BOOTTIME has too, is the least that
// has passed; if the wall clock shows an earlier time than when the file was written, it was set back, and the age is told to be that
// least one "at least". What cannot be known is how long a machine was off whose clock was set back meanwhile to a time after the
// writing. Since the file is written each minute, also during an outage, that is all that a step can hide.
//
// Records are pure; a Shelf is safe for concurrent use as far as files are: one writer for each fleet.
package lastgood
