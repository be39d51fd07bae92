package link

import "time"

// WaitForAnswers lets added IPv6 addresses take longer until the host answers on them, as a busy machine may need.
func (k *Kernel) WaitForAnswers(limit time.Duration) { k.answering = limit }
