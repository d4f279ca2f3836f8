package chaos

import "syscall"

// tied has the kernel end a worker with the bench, however that ends, also when the worker is stopped.
func tied() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
