// Package udp serves UDP sockets from one thread: many datagrams for one system call, each with the kernel's time of its arrival,
// one place to wait for datagrams, for a moment and for other goroutines, and real-time scheduling of the thread. Sender and Receiver are for
// those who speak to known peers and keep a thread for it, an Exchange and a Patient for those who answer anybody.
//
// It guarantees that nothing but Waiter.Wait and Patient.Receive ever waits, and for some milliseconds Exchange.Send where the buffer of the kernel
// is full, and that nothing is allocated for a datagram: a Receiver, a Sender and an Exchange bring their memory along, and what they hand out is
// valid until their next call. Sending and receiving are made as raw system calls, which do not tell the scheduler of Go: they never wait,
// and so hold nobody up for longer than the copying takes. Waiting does tell it.
//
// A Socket, a Receiver, a Sender and an Exchange belong to one goroutine. Of a Waiter, Wake may be called by any goroutine, of a Patient Overflowed,
// Interrupt, Continue and Close; the rest belongs to the one that waits.
//
// It does not know what is in a datagram, from whom it is, or whether it can be believed.
package udp
