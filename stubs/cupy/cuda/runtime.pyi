"""Functions of the CUDA runtime."""

class CUDARuntimeError(RuntimeError):
    status: int
    def __init__(self, status: int) -> None: ...

def getDeviceCount() -> int: ...
def getDevice() -> int: ...
def setDevice(device: int) -> None: ...
def deviceSynchronize() -> None: ...
def runtimeGetVersion() -> int: ...
def memGetInfo() -> tuple[int, int]: ...

# ---- written by stubs/generate.py ----

from cupy import _Int, cuda
from typing import Any
from typing_extensions import disjoint_base

CUDA_C_16F: int
CUDA_C_32F: int
CUDA_C_64F: int
CUDA_C_8I: int
CUDA_C_8U: int
CUDA_R_16BF: int  # CuPy 14
CUDA_R_16F: int
CUDA_R_32F: int
CUDA_R_64F: int
CUDA_R_8I: int
CUDA_R_8U: int

@disjoint_base
class MemPoolProps:
    def __init__(
        self, allocType: _Int, handleType: _Int, locationType: _Int, devId: _Int
    ) -> None: ...

@disjoint_base
class PointerAttributes:
    def __init__(
        self, device: _Int, devicePointer: _Int, hostPointer: _Int, type: _Int = -1
    ) -> None: ...
    @property
    def device(self) -> cuda.Device: ...
    @property
    def devicePointer(self) -> Any: ...
    @property
    def hostPointer(self) -> Any: ...
    @property
    def type(self) -> Any: ...

def check_status(status: _Int) -> None: ...
def createSurfaceObject(ResDescPtr: _Int) -> Any: ...
def createTextureObject(ResDescPtr: _Int, TexDescPtr: _Int) -> Any: ...

cudaAddressModeBorder: int
cudaAddressModeClamp: int
cudaAddressModeMirror: int
cudaAddressModeWrap: int
cudaArrayDefault: int
cudaArraySurfaceLoadStore: int
cudaChannelFormatKindFloat: int
cudaChannelFormatKindNone: int
cudaChannelFormatKindSigned: int
cudaChannelFormatKindUnsigned: int
cudaCpuDeviceId: int
cudaDevAttrAsyncEngineCount: int
cudaDevAttrCanFlushRemoteWrites: int
cudaDevAttrCanMapHostMemory: int
cudaDevAttrCanUseHostPointerForRegisteredMem: int
cudaDevAttrClockRate: int
cudaDevAttrComputeMode: int
cudaDevAttrComputePreemptionSupported: int
cudaDevAttrConcurrentKernels: int
cudaDevAttrConcurrentManagedAccess: int
cudaDevAttrCooperativeLaunch: int
cudaDevAttrCooperativeMultiDeviceLaunch: int
cudaDevAttrDirectManagedMemAccessFromHost: int
cudaDevAttrEccEnabled: int
cudaDevAttrGPUDirectRDMAFlushWritesOptions: int
cudaDevAttrGPUDirectRDMASupported: int
cudaDevAttrGPUDirectRDMAWritesOrdering: int
cudaDevAttrGlobalL1CacheSupported: int
cudaDevAttrGlobalMemoryBusWidth: int
cudaDevAttrGpuOverlap: int
cudaDevAttrHostNativeAtomicSupported: int
cudaDevAttrHostRegisterReadOnlySupported: int
cudaDevAttrHostRegisterSupported: int
cudaDevAttrIntegrated: int
cudaDevAttrIsMultiGpuBoard: int
cudaDevAttrKernelExecTimeout: int
cudaDevAttrL2CacheSize: int
cudaDevAttrLocalL1CacheSupported: int
cudaDevAttrManagedMemory: int
cudaDevAttrMaxBlockDimX: int
cudaDevAttrMaxBlockDimY: int
cudaDevAttrMaxBlockDimZ: int
cudaDevAttrMaxBlocksPerMultiprocessor: int
cudaDevAttrMaxGridDimX: int
cudaDevAttrMaxGridDimY: int
cudaDevAttrMaxGridDimZ: int
cudaDevAttrMaxPitch: int
cudaDevAttrMaxRegistersPerBlock: int
cudaDevAttrMaxRegistersPerMultiprocessor: int
cudaDevAttrMaxSharedMemoryPerBlock: int
cudaDevAttrMaxSharedMemoryPerBlockOptin: int
cudaDevAttrMaxSharedMemoryPerMultiprocessor: int
cudaDevAttrMaxSurface1DLayeredLayers: int
cudaDevAttrMaxSurface1DLayeredWidth: int
cudaDevAttrMaxSurface1DWidth: int
cudaDevAttrMaxSurface2DHeight: int
cudaDevAttrMaxSurface2DLayeredHeight: int
cudaDevAttrMaxSurface2DLayeredLayers: int
cudaDevAttrMaxSurface2DLayeredWidth: int
cudaDevAttrMaxSurface2DWidth: int
cudaDevAttrMaxSurface3DDepth: int
cudaDevAttrMaxSurface3DHeight: int
cudaDevAttrMaxSurface3DWidth: int
cudaDevAttrMaxSurfaceCubemapLayeredLayers: int
cudaDevAttrMaxSurfaceCubemapLayeredWidth: int
cudaDevAttrMaxSurfaceCubemapWidth: int
cudaDevAttrMaxTexture1DLayeredLayers: int
cudaDevAttrMaxTexture1DLayeredWidth: int
cudaDevAttrMaxTexture1DLinearWidth: int
cudaDevAttrMaxTexture1DMipmappedWidth: int
cudaDevAttrMaxTexture1DWidth: int
cudaDevAttrMaxTexture2DGatherHeight: int
cudaDevAttrMaxTexture2DGatherWidth: int
cudaDevAttrMaxTexture2DHeight: int
cudaDevAttrMaxTexture2DLayeredHeight: int
cudaDevAttrMaxTexture2DLayeredLayers: int
cudaDevAttrMaxTexture2DLayeredWidth: int
cudaDevAttrMaxTexture2DLinearHeight: int
cudaDevAttrMaxTexture2DLinearPitch: int
cudaDevAttrMaxTexture2DLinearWidth: int
cudaDevAttrMaxTexture2DMipmappedHeight: int
cudaDevAttrMaxTexture2DMipmappedWidth: int
cudaDevAttrMaxTexture2DWidth: int
cudaDevAttrMaxTexture3DDepth: int
cudaDevAttrMaxTexture3DDepthAlt: int
cudaDevAttrMaxTexture3DHeight: int
cudaDevAttrMaxTexture3DHeightAlt: int
cudaDevAttrMaxTexture3DWidth: int
cudaDevAttrMaxTexture3DWidthAlt: int
cudaDevAttrMaxTextureCubemapLayeredLayers: int
cudaDevAttrMaxTextureCubemapLayeredWidth: int
cudaDevAttrMaxTextureCubemapWidth: int
cudaDevAttrMaxThreadsPerBlock: int
cudaDevAttrMaxThreadsPerMultiProcessor: int
cudaDevAttrMaxTimelineSemaphoreInteropSupported: int
cudaDevAttrMemoryClockRate: int
cudaDevAttrMemoryPoolSupportedHandleTypes: int
cudaDevAttrMemoryPoolsSupported: int
cudaDevAttrMultiGpuBoardGroupID: int
cudaDevAttrMultiProcessorCount: int
cudaDevAttrPageableMemoryAccess: int
cudaDevAttrPageableMemoryAccessUsesHostPageTables: int
cudaDevAttrPciBusId: int
cudaDevAttrPciDeviceId: int
cudaDevAttrPciDomainId: int
cudaDevAttrReserved92: int
cudaDevAttrReserved93: int
cudaDevAttrReserved94: int
cudaDevAttrReservedSharedMemoryPerBlock: int
cudaDevAttrSingleToDoublePrecisionPerfRatio: int
cudaDevAttrSparseCudaArraySupported: int
cudaDevAttrStreamPrioritiesSupported: int
cudaDevAttrSurfaceAlignment: int
cudaDevAttrTccDriver: int
cudaDevAttrTextureAlignment: int
cudaDevAttrTexturePitchAlignment: int
cudaDevAttrTotalConstantMemory: int
cudaDevAttrUnifiedAddressing: int
cudaDevAttrWarpSize: int
cudaFilterModeLinear: int
cudaFilterModePoint: int
cudaGraphDebugDotFlagsConditionalNodeParams: int  # CuPy 14
cudaGraphDebugDotFlagsEventNodeParams: int  # CuPy 14
cudaGraphDebugDotFlagsExtSemasSignalNodeParams: int  # CuPy 14
cudaGraphDebugDotFlagsExtSemasWaitNodeParams: int  # CuPy 14
cudaGraphDebugDotFlagsHandles: int  # CuPy 14
cudaGraphDebugDotFlagsHostNodeParams: int  # CuPy 14
cudaGraphDebugDotFlagsKernelNodeAttributes: int  # CuPy 14
cudaGraphDebugDotFlagsKernelNodeParams: int  # CuPy 14
cudaGraphDebugDotFlagsMemcpyNodeParams: int  # CuPy 14
cudaGraphDebugDotFlagsMemsetNodeParams: int  # CuPy 14
cudaGraphDebugDotFlagsVerbose: int  # CuPy 14
cudaInvalidDeviceId: int
cudaIpcMemLazyEnablePeerAccess: int
cudaLimitDevRuntimePendingLaunchCount: int
cudaLimitDevRuntimeSyncDepth: int
cudaLimitMallocHeapSize: int
cudaLimitMaxL2FetchGranularity: int
cudaLimitPrintfFifoSize: int
cudaLimitStackSize: int
cudaMemAdviseSetAccessedBy: int
cudaMemAdviseSetPreferredLocation: int
cudaMemAdviseSetReadMostly: int
cudaMemAdviseUnsetAccessedBy: int
cudaMemAdviseUnsetPreferredLocation: int
cudaMemAdviseUnsetReadMostly: int
cudaMemAllocationTypePinned: int
cudaMemAttachGlobal: int
cudaMemAttachHost: int
cudaMemAttachSingle: int
cudaMemHandleTypeNone: int
cudaMemHandleTypePosixFileDescriptor: int
cudaMemLocationTypeDevice: int
cudaMemLocationTypeHost: int
cudaMemLocationTypeHostNuma: int
cudaMemLocationTypeHostNumaCurrent: int
cudaMemLocationTypeInvalid: int
cudaMemPoolAttrReleaseThreshold: int
cudaMemPoolAttrReservedMemCurrent: int
cudaMemPoolAttrReservedMemHigh: int
cudaMemPoolAttrUsedMemCurrent: int
cudaMemPoolAttrUsedMemHigh: int
cudaMemPoolReuseAllowInternalDependencies: int
cudaMemPoolReuseAllowOpportunistic: int
cudaMemPoolReuseFollowEventDependencies: int
cudaMemoryTypeDevice: int
cudaMemoryTypeHost: int
cudaReadModeElementType: int
cudaReadModeNormalizedFloat: int
cudaResourceTypeArray: int
cudaResourceTypeLinear: int
cudaResourceTypeMipmappedArray: int
cudaResourceTypePitch2D: int

def destroySurfaceObject(surfObject: Any) -> None: ...
def destroyTextureObject(texObject: Any) -> None: ...
def deviceCanAccessPeer(device: _Int, peerDevice: _Int) -> int: ...
def deviceDisablePeerAccess(peerDevice: _Int) -> None: ...
def deviceEnablePeerAccess(peerDevice: _Int) -> None: ...
def deviceGetAttribute(attrib: _Int, device: _Int) -> int: ...
def deviceGetByPCIBusId(pci_bus_id: str) -> int: ...  # CuPy 14
def deviceGetDefaultMemPool(device: _Int) -> int: ...
def deviceGetLimit(limit: _Int) -> int: ...
def deviceGetMemPool(device: _Int) -> int: ...
def deviceGetPCIBusId(device: _Int) -> str: ...  # CuPy 14
def deviceSetLimit(limit: _Int, value: _Int) -> None: ...
def deviceSetMemPool(device: _Int, pool: _Int) -> None: ...
def driverGetVersion() -> int: ...

eventBlockingSync: int

def eventCreate() -> int: ...
def eventCreateWithFlags(flags: _Int) -> int: ...

eventDefault: int

def eventDestroy(event: _Int) -> None: ...

eventDisableTiming: int

def eventElapsedTime(start: _Int, end: _Int) -> Any: ...

eventInterprocess: int

def eventQuery(event: _Int) -> Any: ...
def eventRecord(event: _Int, stream: int) -> None: ...
def eventSynchronize(event: _Int) -> None: ...
def free(ptr: _Int) -> None: ...
def freeArray(ptr: _Int) -> None: ...
def freeAsync(ptr: _Int, stream: int) -> None: ...
def freeHost(ptr: _Int) -> None: ...
def getDeviceProperties(device: _Int) -> Any: ...
def graphDebugDotPrint(graph: _Int, path: str, flags: _Int) -> Any: ...  # CuPy 14
def graphDestroy(graph: _Int) -> None: ...
def graphExecDestroy(graphExec: _Int) -> None: ...
def graphInstantiate(graph: _Int) -> int: ...
def graphLaunch(graphExec: _Int, stream: int) -> None: ...
def graphUpload(graphExec: _Int, stream: int) -> None: ...
def hostAlloc(size: _Int, flags: _Int) -> int: ...

hostAllocDefault: int
hostAllocMapped: int
hostAllocPortable: int
hostAllocWriteCombined: int

def hostRegister(ptr: _Int, size: _Int, flags: _Int) -> None: ...
def hostUnregister(ptr: _Int) -> None: ...
def ipcCloseMemHandle(devPtr: _Int) -> None: ...
def ipcGetEventHandle(event: _Int) -> Any: ...
def ipcGetMemHandle(devPtr: _Int) -> Any: ...
def ipcOpenEventHandle(handle: bytes) -> Any: ...
def ipcOpenMemHandle(handle: bytes, flags: _Int = ...) -> Any: ...

is_hip: bool

def launchHostFunc(stream: int, callback: Any, arg: _Int) -> None: ...
def malloc(size: _Int) -> int: ...
def malloc3DArray(
    descPtr: _Int, width: _Int, height: _Int, depth: _Int, flags: _Int = 0
) -> int: ...
def mallocArray(descPtr: _Int, width: _Int, height: _Int, flags: _Int = 0) -> int: ...
def mallocAsync(size: _Int, stream: int) -> int: ...
def mallocFromPoolAsync(size: _Int, pool: _Int, stream: int) -> int: ...
def mallocManaged(size: _Int, flags: _Int = ...) -> int: ...
def memAdvise(devPtr: _Int, count: _Int, advice: _Int, device: _Int) -> None: ...
def memPoolCreate(props: Any) -> int: ...
def memPoolDestroy(pool: _Int) -> None: ...
def memPoolGetAttribute(pool: _Int, attr: _Int) -> Any: ...
def memPoolSetAttribute(pool: _Int, attr: _Int, value: Any) -> None: ...
def memPoolTrimTo(pool: _Int, size: _Int) -> None: ...
def memPrefetchAsync(
    devPtr: _Int, count: _Int, dstDevice: _Int, stream: int
) -> None: ...
def memcpy(dst: _Int, src: _Int, size: _Int, kind: _Int) -> None: ...
def memcpy2D(
    dst: _Int,
    dpitch: _Int,
    src: _Int,
    spitch: _Int,
    width: _Int,
    height: _Int,
    kind: Any,
) -> None: ...
def memcpy2DAsync(
    dst: _Int,
    dpitch: _Int,
    src: _Int,
    spitch: _Int,
    width: _Int,
    height: _Int,
    kind: Any,
    stream: int,
) -> None: ...
def memcpy2DFromArray(
    dst: _Int,
    dpitch: _Int,
    src: _Int,
    wOffset: _Int,
    hOffset: _Int,
    width: _Int,
    height: _Int,
    kind: _Int,
) -> None: ...
def memcpy2DFromArrayAsync(
    dst: _Int,
    dpitch: _Int,
    src: _Int,
    wOffset: _Int,
    hOffset: _Int,
    width: _Int,
    height: _Int,
    kind: _Int,
    stream: int,
) -> None: ...
def memcpy2DToArray(
    dst: _Int,
    wOffset: _Int,
    hOffset: _Int,
    src: _Int,
    spitch: _Int,
    width: _Int,
    height: _Int,
    kind: _Int,
) -> None: ...
def memcpy2DToArrayAsync(
    dst: _Int,
    wOffset: _Int,
    hOffset: _Int,
    src: _Int,
    spitch: _Int,
    width: _Int,
    height: _Int,
    kind: _Int,
    stream: int,
) -> None: ...
def memcpy3D(Memcpy3DParmsPtr: _Int) -> None: ...
def memcpy3DAsync(Memcpy3DParmsPtr: _Int, stream: int) -> None: ...
def memcpyAsync(dst: _Int, src: _Int, size: _Int, kind: _Int, stream: int) -> None: ...

memcpyDefault: int
memcpyDeviceToDevice: int
memcpyDeviceToHost: int
memcpyHostToDevice: int
memcpyHostToHost: int

def memcpyPeer(
    dst: _Int, dstDevice: _Int, src: _Int, srcDevice: _Int, size: _Int
) -> None: ...
def memcpyPeerAsync(
    dst: _Int, dstDevice: _Int, src: _Int, srcDevice: _Int, size: _Int, stream: int
) -> None: ...

memoryTypeDevice: int
memoryTypeHost: int
memoryTypeManaged: int
memoryTypeUnregistered: int

def memset(ptr: _Int, value: _Int, size: _Int) -> None: ...
def memsetAsync(ptr: _Int, value: _Int, size: _Int, stream: int) -> None: ...
def pointerGetAttributes(ptr: _Int) -> Any: ...
def pointerGetMemoryType(ptr: _Int) -> int: ...  # CuPy 14
def profilerStart() -> None: ...
def profilerStop() -> None: ...
def streamAddCallback(
    stream: int, callback: Any, arg: _Int, flags: _Int = 0
) -> None: ...
def streamBeginCapture(stream: int, mode: _Int = ...) -> None: ...

streamCaptureModeGlobal: int
streamCaptureModeRelaxed: int
streamCaptureModeThreadLocal: int
streamCaptureStatusActive: int
streamCaptureStatusInvalidated: int
streamCaptureStatusNone: int

def streamCreate() -> int: ...
def streamCreateWithFlags(flags: _Int) -> int: ...
def streamCreateWithPriority(flags: _Int, priority: _Int) -> int: ...  # CuPy 14

streamDefault: int

def streamDestroy(stream: int) -> None: ...
def streamEndCapture(stream: int) -> int: ...
def streamGetFlags(stream: int) -> int: ...  # CuPy 14
def streamGetPriority(stream: int) -> int: ...  # CuPy 14
def streamIsCapturing(stream: int) -> bool: ...

streamLegacy: int
streamNonBlocking: int
streamPerThread: int

def streamQuery(stream: int) -> Any: ...
def streamSynchronize(stream: int) -> None: ...
def streamWaitEvent(stream: int, event: _Int, flags: _Int = 0) -> None: ...
